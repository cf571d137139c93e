// Times MPI_Allreduce of floats, as a peer of `grapevine bench allreduce`: the time from a barrier
// to the sum on rank 0. Prints one JSON object per size.
//
// Usage: mpirun -n N mpi_allreduce ITERATIONS BYTES…
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void measure(int rank, int ranks, int iterations, long bytes) {
  const int count = (int)(bytes / (long)sizeof(float));
  float* data = malloc((size_t)count * sizeof(float));
  double* seconds = malloc((size_t)iterations * sizeof(double));
  for (int turn = -1; turn < iterations; ++turn) {  // the first one touches fresh memory
    for (int i = 0; i < count; ++i) data[i] = (float)(rank + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (turn >= 0) seconds[turn] = MPI_Wtime() - begin;
  }
  if (data[count - 1] != (float)(ranks * (ranks + 1) / 2)) MPI_Abort(MPI_COMM_WORLD, 1);
  if (rank == 0) {
    printf("{\"bytes\": %ld, \"seconds\": [", bytes);
    for (int i = 0; i < iterations; ++i) printf("%s%.9f", i > 0 ? ", " : "", seconds[i]);
    printf("]}\n");
  }
  free(seconds);
  free(data);
}

int main(int argc, char** argv) {
  int rank = 0, ranks = 1;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (int i = 2; i < argc; ++i) measure(rank, ranks, atoi(argv[1]), atol(argv[i]));
  MPI_Finalize();
  return 0;
}
