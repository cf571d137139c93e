#include "gpu/threads/math_threads.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <sys/mman.h>

#include <string>
#include <vector>

namespace grapevine {
namespace {

constexpr std::size_t kProductBytes = (std::size_t{128} << 20) + (std::size_t{1} << 16);

// Address space, as long as this object lives; nothing is written to it.
class AddressSpace {
 public:
  ~AddressSpace() {
    for (void* piece : pieces_) ::munmap(piece, kProductBytes);
  }
  bool take_one() {
    void* piece =
        ::mmap(nullptr, kProductBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) return false;
    pieces_.push_back(piece);
    return true;
  }

 private:
  std::vector<void*> pieces_;
};

// Which BLAS LibTorch uses is decided when it is loaded; there is no header to ask.
void* openblas_function(const char* name) { return ::dlsym(RTLD_DEFAULT, name); }

}  // namespace

void limit_math_threads(int threads) {
  at::set_num_threads(threads);
  if (void* symbol = openblas_function("openblas_set_num_threads"))
    reinterpret_cast<void (*)(int)>(symbol)(threads);
}

Expected<void> check_product_memory(int threads) {
  if (openblas_function("openblas_set_num_threads") == nullptr) return {};
  AddressSpace space;
  for (int i = 0; i < threads; ++i)
    if (!space.take_one())
      return Error{Errc::failed, "too little address space for the matrix products of " +
                                     std::to_string(threads) +
                                     (threads == 1 ? " thread" : " threads") +
                                     ", 128 MiB each: raise the limit (ulimit -v)" +
                                     (threads == 1 ? "" : ", or use fewer --workers")};
  return {};
}

Expected<void> take_product_memory() {
  if (auto room = check_product_memory(1); !room) return room;
  // Smaller products do without the memory on some processors.
  const at::Tensor factor = at::ones({256, 256});
  factor.mm(factor);
  return {};
}

}  // namespace grapevine
