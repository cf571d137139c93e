#include "tests/apps/simulate/mutants/mutant_transport.hpp"

#include <map>
#include <optional>
#include <utility>

namespace grapevine {
namespace simulate_mutants {
namespace {

// What a mutant does to the messages of one inbox.
class MutantInbox : public Inbox {
 public:
  explicit MutantInbox(std::shared_ptr<Inbox> inner) : inner_(std::move(inner)) {}
  void peer_down(Rank peer, const std::string& reason) override { inner_->peer_down(peer, reason); }
  void lost(Rank peer) override { inner_->lost(peer); }

 protected:
  Inbox& inner() { return *inner_; }

 private:
  const std::shared_ptr<Inbox> inner_;
};

using MakeInbox = std::function<std::shared_ptr<Inbox>(Rank, std::shared_ptr<Inbox>)>;

class MutantTransport final : public Transport {
 public:
  MutantTransport(std::shared_ptr<Transport> inner, MakeInbox make)
      : inner_(std::move(inner)), make_(std::move(make)) {}
  Expected<void> attach(Rank rank, std::shared_ptr<Inbox> inbox) override {
    return inner_->attach(rank, make_(rank, std::move(inbox)));
  }
  void detach(Rank rank) override { inner_->detach(rank); }
  void send(Envelope envelope) override { inner_->send(std::move(envelope)); }
  TransportCounters counters(Rank rank) const override { return inner_->counters(rank); }
  std::int32_t world_size() const override { return inner_->world_size(); }
  std::uint64_t size_of(const Envelope& envelope) const override {
    return inner_->size_of(envelope);
  }

 private:
  const std::shared_ptr<Transport> inner_;
  const MakeInbox make_;
};

void wrap(SimJob& made, MakeInbox make) {
  made.job.run.transport =
      std::make_shared<MutantTransport>(made.job.run.transport, std::move(make));
}

class ReplayingInbox final : public MutantInbox {
 public:
  using MutantInbox::MutantInbox;
  void deliver(Envelope envelope) override {
    const Rank from = envelope.from;
    if (std::holds_alternative<Share>(envelope.payload)) {
      // The numbers of a later life are larger by far.
      const auto old = newest_.find(from);
      if (old != newest_.end() && envelope.stamp.sequence > old->second.stamp.sequence + kFar)
        late_ = old->second;
      newest_[from] = envelope;
    }
    inner().deliver(std::move(envelope));
    if (late_) inner().deliver(*std::exchange(late_, std::nullopt));
  }

 private:
  static constexpr std::uint64_t kFar = 1'000'000;
  std::map<Rank, Envelope> newest_;
  std::optional<Envelope> late_;
};

class OvertakingInbox final : public MutantInbox {
 public:
  using MutantInbox::MutantInbox;
  void deliver(Envelope envelope) override {
    if (!done_ && !held_ && std::holds_alternative<Share>(envelope.payload)) {
      held_ = std::move(envelope);
      return;
    }
    const bool second = held_ && held_->from == envelope.from;
    inner().deliver(std::move(envelope));
    if (!second) return;
    done_ = true;
    inner().deliver(*std::exchange(held_, std::nullopt));
  }

 private:
  std::optional<Envelope> held_;
  bool done_ = false;
};

}  // namespace

void replay_earlier_lives(SimJob& made) {
  wrap(made, [](Rank, std::shared_ptr<Inbox> inbox) {
    return std::make_shared<ReplayingInbox>(std::move(inbox));
  });
}

void let_one_overtake(SimJob& made) {
  wrap(made, [](Rank rank, std::shared_ptr<Inbox> inbox) {
    return rank == 1 ? std::make_shared<OvertakingInbox>(std::move(inbox)) : std::move(inbox);
  });
}

}  // namespace simulate_mutants
}  // namespace grapevine
