// What processes hear when they come together for a run.
#include "actors/lobby.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <future>
#include <thread>

#include "actors/runtime.hpp"

namespace grapevine {
namespace {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

// Stands for the supervisor: keeps what the lobby tells it.
struct Told {
  std::promise<std::size_t> crew;  // its peers
  std::promise<Error> failed;
};

SupervisorActor::behavior_type listener(SupervisorActor::pointer, std::shared_ptr<Told> told) {
  return {[told](BeginRun& crew) { told->crew.set_value(crew.deputies.size()); },
          [](const StepReport&) {},
          [](RankFinished) {},
          [](RankSnapshot&) {},
          [](RankReport&) {},
          [told](const RankFailed& failed) { told->failed.set_value(failed.error); },
          [](const EpochEvaluated&) {},
          [](Progress) {},
          [](const CheckpointWritten&) {},
          [](StopRequested) {},
          [](CheckpointRequested) {},
          [](Watchdog) {},
          [](CollectAgain) {},
          [](const TraceClosed&) {},
          [](Farewell) {},
          [](const LinkLost&) {},
          [](AskAgain) {}};
}

class LobbyTest : public testing::Test {
 protected:
  void open(std::int32_t processes, Duration patience = std::chrono::seconds(50)) {
    supervisor_ = system_.spawn(listener, told_);
    LobbyConfig config;
    config.processes = processes;
    config.version = "1";
    config.identity = {{"lr", "0.1"}, {"model", "mlp"}};
    config.out = "runs/x";
    config.patience = patience;
    config.supervisor = supervisor_;
    lobby_ = system_.spawn(lobby, config);
  }

  static Join join(std::int32_t process) {
    Join join;
    join.process = process;
    join.version = "1";
    join.identity = {{"lr", "0.1"}, {"model", "mlp"}};
    join.host = "host" + std::to_string(process);
    join.address = "address" + std::to_string(process);
    return join;
  }

  // The lobby answers all at once: each process asks from a thread of its own.
  std::future<Welcome> ask(Join join) {
    return std::async(std::launch::async, [this, join]() mutable {
      caf::scoped_actor self{system_};
      Welcome result;
      result.error.message = "no answer";
      self->request(lobby_, kDeadline, std::move(join))
          .receive([&](Welcome& welcome) { result = welcome; }, [](const caf::error&) {});
      return result;
    });
  }

  Error told_error() {
    auto future = told_->failed.get_future();
    if (future.wait_for(kDeadline) != std::future_status::ready) return {Errc::failed, "nothing"};
    return future.get();
  }

  void TearDown() override {
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
    supervisor_ = SupervisorActor{};
    lobby_ = LobbyActor{};
  }

  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Told> told_ = std::make_shared<Told>();
  SupervisorActor supervisor_;
  LobbyActor lobby_;
};

TEST_F(LobbyTest, WelcomesAllOnceAllAreThere) {
  open(3);
  std::vector<std::future<Welcome>> asked;
  for (const std::int32_t process : {2, 0, 1}) asked.push_back(ask(join(process)));
  for (auto& answer : asked) {
    const Welcome welcome = answer.get();
    EXPECT_FALSE(welcome.refused) << welcome.error.message;
    EXPECT_EQ(welcome.hosts, (std::vector<std::string>{"host0", "host1", "host2"}));
    EXPECT_EQ(welcome.addresses, (std::vector<std::string>{"address0", "address1", "address2"}));
    EXPECT_EQ(welcome.out, "runs/x");
  }
  for (std::int32_t process = 0; process < 3; ++process) {
    Ready ready;
    ready.process = process;
    caf::anon_send(lobby_, ready);
  }
  auto crew = told_->crew.get_future();
  ASSERT_EQ(crew.wait_for(kDeadline), std::future_status::ready);
  // Who comes after the beginning is sent away and disturbs nobody.
  const Welcome late = ask(join(1)).get();
  EXPECT_TRUE(late.refused);
  EXPECT_NE(late.error.message.find("comes too late"), std::string::npos) << late.error.message;
}

TEST_F(LobbyTest, WhatIsWrongWithOneIsToldToAll) {
  struct Case {
    std::function<void(Join&)> spoil;
    std::string expected;
  };
  const std::vector<Case> cases = {
      {[](Join& j) { j.process = 0; }, "process 0 was started twice"},
      {[](Join& j) { j.process = 7; }, "does not fit a job of 3 processes"},
      {[](Join& j) { j.version = "2"; }, "runs version 2, process 0 version 1"},
      {[](Join& j) { j.identity["lr"] = "0.2"; }, "lr = 0.2, process 0 with 0.1"},
      {[](Join& j) { j.identity.erase("model"); }, "model = nothing, process 0 with mlp"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.expected);
    told_ = std::make_shared<Told>();
    open(3);
    // From one sender, so that the spoilt one comes second and both must hear of it.
    caf::scoped_actor self{system_};
    Join spoilt = join(1);
    c.spoil(spoilt);
    auto first = self->request(lobby_, kDeadline, join(0));
    auto second = self->request(lobby_, kDeadline, std::move(spoilt));
    for (auto* answer : {&first, &second})
      answer->receive(
          [&](Welcome& welcome) {
            EXPECT_TRUE(welcome.refused);
            EXPECT_NE(welcome.error.message.find(c.expected), std::string::npos)
                << welcome.error.message;
          },
          [](const caf::error&) { ADD_FAILURE() << "no answer"; });
    EXPECT_NE(told_error().message.find(c.expected), std::string::npos);
    caf::anon_send_exit(supervisor_, caf::exit_reason::user_shutdown);
  }
}

TEST_F(LobbyTest, NamesWhoDoesNotCome) {
  open(4, std::chrono::milliseconds(200));
  auto first = ask(join(0));
  auto second = ask(join(2));
  for (auto* answer : {&first, &second}) {
    const Welcome welcome = answer->get();
    EXPECT_TRUE(welcome.refused);
    EXPECT_NE(welcome.error.message.find("process 1, 3 did not join"), std::string::npos)
        << welcome.error.message;
  }
  EXPECT_EQ(told_error().code, Errc::timeout);
}

TEST_F(LobbyTest, NamesWhoCannotConnect) {
  open(2);
  auto first = ask(join(0));
  auto second = ask(join(1));
  EXPECT_FALSE(first.get().refused);
  EXPECT_FALSE(second.get().refused);
  Ready failed;
  failed.process = 1;
  failed.failed = true;
  failed.error = {Errc::timeout, "process 1 cannot reach process 0"};
  caf::anon_send(lobby_, failed);
  EXPECT_EQ(told_error().message, "process 1 cannot reach process 0");
}

}  // namespace
}  // namespace grapevine
