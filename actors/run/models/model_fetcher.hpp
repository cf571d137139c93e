// ModelFetcher: fetches models of ranks in other processes, for validations and the final average.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/run.hpp"

namespace grapevine {

struct ModelFetcherConfig {
  SupervisorActor supervisor;   // receives the progress
  std::vector<Rank> receivers;  // the ranks of process 0
};

// Lives in process 0. Asks the ModelSenders for parts of at most 4 MiB, which arrive over the
// transport through a Peer of process 0; parts whose Peer is lost are asked for again. The fetches
// in progress are for at most kMostElements (or one fetch, if that is for more), with kWindow parts
// of each on their way, so that memory and traffic do not grow with the number of ranks; the others
// wait in the order of their arrival. A fetch ends with its numbers, with the loss of its process,
// or with the refusal of the sender. All members belong to the actor; errors are in the answers.
class ModelFetcherState {
 public:
  static constexpr std::int64_t kMostElements = std::int64_t{16} << 20;  // 64 MiB
  static constexpr std::int64_t kWindow = 2;

  const char* name = "model_fetcher";

  void init(ModelFetcherActor::stateful_pointer<ModelFetcherState> self, ModelFetcherConfig config);
  caf::result<FetchedModel> on_fetch(FetchModel& order);
  void on_part(const StatePart& part);
  void on_lost(const PeerLost& lost);
  void on_members(const MembersChanged& changed);
  void on_down(const caf::actor_addr& sender);

 private:
  using FetchId = std::int64_t;
  struct Fetch {
    FetchModel order;
    caf::typed_response_promise<FetchedModel> answer;
    at::Tensor values = {};      // [order.count] float32
    std::int64_t asked = 0;      // elements that were asked for
    std::int64_t arrived = 0;    // elements that have arrived
    std::int64_t parts_out = 0;  // parts that were asked for and have not arrived
  };
  struct Part {
    FetchId fetch = 0;
    std::int64_t begin = 0, count = 0;  // of the fetch
    Rank to = 0;                        // whose Peer receives it
  };

  std::optional<Rank> receiver() const;
  void start_waiting();
  void start(Fetch fetch);
  void ask_for_parts(FetchId id);
  void ask_for(FetchId id, std::int64_t begin, std::int64_t count);
  void ask_again(Rank receiver);
  void refuse(FetchId id, bool lost, std::string why);
  void end(FetchId id, FetchedModel result);
  template <class Predicate>
  void lose_if(Predicate lost);

  ModelFetcherActor::stateful_pointer<ModelFetcherState> self_ = nullptr;
  ModelFetcherConfig config_;
  std::set<Rank> lost_;
  std::map<FetchId, Fetch> open_;
  std::int64_t open_elements_ = 0;  // of their orders
  std::deque<Fetch> waiting_;
  std::map<std::int64_t, Part> parts_;  // on their way, by transfer
  std::set<caf::actor_addr> monitored_;
  FetchId next_fetch_ = 0;
  std::int64_t next_transfer_;
};

ModelFetcherActor::behavior_type model_fetcher(
    ModelFetcherActor::stateful_pointer<ModelFetcherState> self, ModelFetcherConfig config);

}  // namespace grapevine
