#include "actors/run/models/model_averager.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "actors/run/models/model_transfer.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kSliceMemory = std::int64_t{64} << 20;    // bytes, of all ranks
constexpr std::int64_t kSmallestSlice = std::int64_t{64} << 10;  // bytes, of one

std::vector<SliceAverage::Source> sources_of(const std::vector<LastModel>& models) {
  std::vector<SliceAverage::Source> sources;
  for (const LastModel& model : models) {
    const bool remote = static_cast<bool>(model.offer.sender);
    sources.push_back({model.server, remote ? model.offer.parameters : model.z.numel(),
                       remote ? model.offer.buffers : model.buffers.numel()});
  }
  return sources;
}

// Those of this process may be on devices.
void bring_to_host(std::vector<LastModel>& models) {
  for (LastModel& model : models) {
    model.z = model.z.on_host();
    model.buffers = model.buffers.on_host();
  }
}

// Of a model in this process, in the host's memory.
const float* values_at(const LastModel& model, std::int64_t begin) {
  const std::int64_t parameters = model.z.numel();
  return begin < parameters ? model.z.data<float>() + begin
                            : model.buffers.data<float>() + (begin - parameters);
}

// `fetched`: of the slice's pieces, empty for models of this process.
void add_slice_of(SliceAverage& average, const std::vector<LastModel>& models,
                  const std::vector<FrozenTensor>& fetched) {
  const std::vector<SliceAverage::Piece>& pieces = average.slice()->pieces;
  std::vector<const float*> values;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    values.push_back(fetched[i].defined() ? fetched[i].data<float>()
                                          : values_at(models[pieces[i].source], pieces[i].begin));
  average.add(values);
}

AveragedModels result_of(std::int64_t round, SliceAverage& average) {
  AveragedModels result;
  result.round = round;
  result.consensus_distance = average.consensus_distance();
  result.z = average.z();
  result.buffers = average.buffers();
  return result;
}

}  // namespace

AveragedModels average_here(std::vector<LastModel> models) {
  bring_to_host(models);
  SliceAverage average(sources_of(models), std::numeric_limits<std::int64_t>::max());
  while (average.slice())
    add_slice_of(average, models, std::vector<FrozenTensor>(average.slice()->pieces.size()));
  return result_of(0, average);
}

std::int64_t slice_for(std::size_t ranks) {
  const auto each = kSliceMemory / static_cast<std::int64_t>(std::max<std::size_t>(ranks, 1));
  return std::max(each, kSmallestSlice) / kModelElement;
}

void ModelAveragerState::init(ModelAveragerActor::stateful_pointer<ModelAveragerState> self,
                              ModelAveragerConfig config) {
  self_ = self;
  config_ = std::move(config);
}

void ModelAveragerState::on_order(AverageModels& order) {
  try {
    begin(order);
  } catch (...) {  // for example no memory for the mean
    refuse(exception_line(std::current_exception()));
  }
}

void ModelAveragerState::begin(AverageModels& order) {
  order_ = std::move(order);
  bring_to_host(order_.models);
  average_.emplace(sources_of(order_.models), slice_for(order_.models.size()));
  fetch_slice();
}

void ModelAveragerState::fetch_slice() {
  if (!average_->slice()) {
    self_->send(config_.supervisor, result_of(order_.round, *average_));
    average_.reset();
    return;
  }
  const SliceAverage::Slice& slice = *average_->slice();
  fetched_.assign(slice.pieces.size(), FrozenTensor());
  missing_ = 0;
  for (std::size_t i = 0; i < slice.pieces.size(); ++i) {
    const LastModel& model = order_.models[slice.pieces[i].source];
    if (!model.offer.sender) continue;
    ++missing_;
    self_
        ->request(config_.fetcher, caf::infinite,
                  FetchModel{model.offer, slice.pieces[i].begin, slice.count})
        .then([this, round = order_.round, i](FetchedModel& fetched) {
          on_fetched(round, i, fetched);
        });
  }
  if (missing_ == 0) add_slice();
}

void ModelAveragerState::on_fetched(std::int64_t round, std::size_t piece, FetchedModel& fetched) {
  if (!average_ || round != order_.round || fetched.lost) return;
  if (!fetched.values.defined()) return refuse(fetched.why);
  fetched_[piece] = std::move(fetched.values);
  if (--missing_ == 0) add_slice();
}

void ModelAveragerState::add_slice() {
  add_slice_of(*average_, order_.models, fetched_);
  fetch_slice();
}

void ModelAveragerState::refuse(const std::string& why) {
  average_.reset();
  AveragedModels failed;
  failed.round = order_.round;
  failed.why = why;
  self_->send(config_.supervisor, std::move(failed));
}

ModelAveragerActor::behavior_type model_averager(
    ModelAveragerActor::stateful_pointer<ModelAveragerState> self, ModelAveragerConfig config) {
  ModelAveragerState& state = self->state;
  state.init(self, std::move(config));
  return {[&state](AverageModels& order) { state.on_order(order); }};
}

}  // namespace grapevine
