// ModelSender: keeps the models of the ranks of a process other than process 0 until process 0 has
// fetched them.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "actors/protocol/models.hpp"
#include "net/transport.hpp"

namespace grapevine {

struct ModelSenderConfig {
  std::shared_ptr<Transport> transport;
};

// Models go to process 0 over the transport, as the messages between ranks, in the parts for which
// the ModelFetcher there asks. A kept model is a handle: its rank copies only what it changes. Of a
// rank that is far ahead of its models' use the kMostEpochs newest are kept, and its last model.
class ModelSenderState {
 public:
  static constexpr std::size_t kMostEpochs = 8;

  const char* name = "model_sender";

  void init(ModelSenderConfig config) { config_ = std::move(config); }
  void on_keep(EpochModel& model);
  ModelSent on_send(const SendModel& order);
  void on_release(const ReleaseModel& model);

 private:
  std::string send(const SendModel& order);

  ModelSenderConfig config_;
  std::map<Rank, std::map<Epoch, EpochModel>> kept_;
};

// Spawn it detached.
ModelSenderActor::behavior_type model_sender(
    ModelSenderActor::stateful_pointer<ModelSenderState> self, ModelSenderConfig config);

}  // namespace grapevine
