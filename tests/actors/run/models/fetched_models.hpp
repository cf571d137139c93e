// Ranks of several processes as process 0 knows them: ModelSenders behind an in-process transport,
// whose messages to rank 0 go to a ModelFetcher in any order.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actors/run/models/model_fetcher.hpp"
#include "actors/run/models/model_sender.hpp"
#include "actors/run/models/model_transfer.hpp"
#include "net/inproc/inproc.hpp"
#include "tests/actors/virtual_actors.hpp"

namespace grapevine {

class FetchedModels : public VirtualActors {
 protected:
  static constexpr std::int32_t kRanks = 8;

  struct Parts : Inbox {
    void deliver(Envelope envelope) override { envelopes.push_back(std::move(envelope)); }
    void peer_down(Rank, const std::string&) override {}
    std::vector<Envelope> envelopes;
  };

  FetchedModels() {
    EXPECT_TRUE(transport_->attach(0, head_).ok());
    for (Rank rank = 1; rank < kRanks; ++rank) {
      EXPECT_TRUE(transport_->attach(rank, std::make_shared<Parts>()).ok());
      senders_.push_back(system_.spawn(model_sender, ModelSenderConfig{transport_}));
    }
    fetcher_ = system_.spawn(model_fetcher,
                             ModelFetcherConfig{played<SupervisorActor>(), std::vector<Rank>{0}});
  }
  ~FetchedModels() override {
    for (Rank rank = 0; rank < kRanks; ++rank) transport_->detach(rank);
    kill(fetcher_);
    for (const ModelSenderActor& sender : senders_) kill(sender);
  }

  const ModelSenderActor& sender_of(Rank rank) const {
    return senders_[static_cast<std::size_t>(rank) - 1];
  }

  // Kept by its sender.
  ModelOffer offer(Rank rank, Epoch epoch, const FrozenTensor& z, const FrozenTensor& buffers) {
    self_->send(sender_of(rank), EpochModel{rank, epoch, z, buffers});
    settle();
    return {rank, epoch, z.numel(), buffers.numel(), sender_of(rank)};
  }

  std::size_t parts_out() const { return head_->envelopes.size(); }
  std::int64_t elements_out() const {
    std::int64_t bytes = 0;
    for (const Envelope& envelope : head_->envelopes)
      bytes += std::get<StateChunk>(envelope.payload).data.numel();
    return bytes / 4;
  }

  // One of the messages on their way, any of them. False: there is none.
  bool deliver_one(std::mt19937_64& random) {
    settle();
    if (head_->envelopes.empty()) return false;
    const auto at = static_cast<std::ptrdiff_t>(random() % head_->envelopes.size());
    const Envelope envelope = head_->envelopes[static_cast<std::size_t>(at)];
    head_->envelopes.erase(head_->envelopes.begin() + at);
    self_->send(fetcher_, StatePart{envelope.from, std::get<StateChunk>(envelope.payload)});
    settle();
    return true;
  }

  const std::shared_ptr<Transport> transport_ = make_inproc_transport(kRanks);
  const std::shared_ptr<Parts> head_ = std::make_shared<Parts>();
  std::vector<ModelSenderActor> senders_;  // of ranks 1.., a process each
  ModelFetcherActor fetcher_;
};

}  // namespace grapevine
