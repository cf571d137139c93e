// Lobby: where the processes of a run find each other before it begins.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "actors/protocol.hpp"

namespace grapevine {

struct LobbyConfig {
  std::int32_t processes = 1;
  std::string version;                          // of this program: all run the same
  std::map<std::string, std::string> identity;  // of the head's job: all train the same
  std::string out;
  Duration patience{std::chrono::seconds(60)};  // for all to join, and again for all to connect
  SupervisorActor supervisor;
  EvaluatorActor evaluator;  // null: no validation beside training
  CheckpointWriterActor writer;
  TracerActor tracer;
};

// Lives in the head, process 0, as long as the supervisor. Collects one Join of every process,
// answers all of them together, collects one Ready of every process and hands the crew to the
// supervisor. Whatever is wrong, two processes that claim one number, another version or job,
// somebody who does not come, is told to everybody who came and to the supervisor, once. Who comes
// later is sent away.
class LobbyState {
 public:
  const char* name = "lobby";

  void init(LobbyActor::stateful_pointer<LobbyState> self, LobbyConfig config);
  caf::result<Welcome> on_join(Join& join);
  void on_ready(Ready& ready);
  void on_deadline(JoinDeadline deadline);

 private:
  using Answer = caf::typed_response_promise<Welcome>;
  struct Guest {
    Join join;
    Answer answer;
  };

  Expected<void> check(const Join& join) const;
  void welcome_all();
  void refuse_all(const Error& error);
  static Welcome refusal(const Error& error);
  void begin_run();
  std::string missing() const;

  LobbyActor::stateful_pointer<LobbyState> self_ = nullptr;
  LobbyConfig config_;
  std::map<std::int32_t, Guest> guests_;  // by process
  std::map<std::int32_t, Ready> ready_;
  bool welcomed_ = false;
  bool begun_ = false;
  bool refused_ = false;
};

LobbyActor::behavior_type lobby(LobbyActor::stateful_pointer<LobbyState> self, LobbyConfig config);

}  // namespace grapevine
