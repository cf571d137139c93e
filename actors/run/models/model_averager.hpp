// ModelAverager: the mean of the last models of all ranks, of which most are in other processes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/protocol/run.hpp"
#include "actors/run/models/slice_average.hpp"

namespace grapevine {

// The mean of models that are all in this process.
AveragedModels average_here(std::vector<LastModel> models);

// How many elements each of `ranks` ranks sends for one slice: all of them together take at most
// 64 MiB here, and a slice at least 64 KiB.
std::int64_t slice_for(std::size_t ranks);

struct ModelAveragerConfig {
  SupervisorActor supervisor;
  ModelFetcherActor fetcher;
};

// Fetches slice after slice of all models: its memory is that of one model and of one slice of
// each rank. A new order takes the place of the one before; an order whose model cannot be fetched
// because its process is lost waits for the next one, without that model.
class ModelAveragerState {
 public:
  const char* name = "model_averager";

  void init(ModelAveragerActor::stateful_pointer<ModelAveragerState> self,
            ModelAveragerConfig config);
  void on_order(AverageModels& order);

 private:
  void begin(AverageModels& order);
  void fetch_slice();
  void on_fetched(std::int64_t round, std::size_t piece, FetchedModel& fetched);
  void add_slice();
  void refuse(const std::string& why);

  ModelAveragerActor::stateful_pointer<ModelAveragerState> self_ = nullptr;
  ModelAveragerConfig config_;
  AverageModels order_;
  std::optional<SliceAverage> average_;
  std::vector<FrozenTensor> fetched_;  // of the slice, by piece; empty: of this process
  std::size_t missing_ = 0;            // of them
};

// Spawn it detached.
ModelAveragerActor::behavior_type model_averager(
    ModelAveragerActor::stateful_pointer<ModelAveragerState> self, ModelAveragerConfig config);

}  // namespace grapevine
