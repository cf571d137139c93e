// Jobs with --tls, as users start them: real processes on loopback.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "net/file_descriptor.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/cluster/tls_folder.hpp"
#include "tests/apps/node/relay.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace tls_job_test {

namespace fs = std::filesystem;
using cluster_test::expired_certificates;
using cluster_test::free_port;
using cluster_test::has_begun;
using cluster_test::made_certificates;
using cluster_test::start;
using nlohmann::json;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// How often; one line each.
std::size_t lines_with(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

class TlsJob : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }

  std::vector<std::string> launched(const std::string& algorithm, const std::string& out,
                                    const std::vector<std::string>& more,
                                    const std::vector<std::string>& launch = {}) const {
    return with(with(with({"launch", "-n", "3"}, launch), {"--"}),
                with(small_run(algorithm, at(out)), more));
  }
  void expect_equal_models(const std::string& a, const std::string& b) const {
    const auto one = read_checkpoint(at(a)), other = read_checkpoint(at(b));
    ASSERT_TRUE(one.ok() && other.ok());
    for (std::size_t rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(
          at::equal(*one->ranks[rank].tensor("model.x"), *other->ranks[rank].tensor("model.x")))
          << "rank " << rank;
  }
  // Process 1 of two, whose process 0 has `head` of the arguments.
  struct Two {
    ProcessResult first, second;
  };
  // Process 0 would wait for another one until it is asked to end.
  Two run_two(const std::vector<std::string>& head, const std::vector<std::string>& other) const {
    const std::uint16_t port = free_port();
    const auto job =
        with(small_run("ar", at("two")), {"--transport", "tcp", "--join-timeout", "100"});
    Process first(start("torchrun", 0, 2, port, with(job, head)));
    Process second(start("torchrun", 1, 2, port, with(job, other)));
    Two two;
    two.second = second.wait();
    EXPECT_TRUE(first.wait_for_output("control: dropped a connection from 127.0.0.1"))
        << first.so_far().describe();
    first.signal(SIGTERM);
    two.first = first.wait();
    return two;
  }

  // What a port scanner and forgotten connections do, before and while a job trains. Some lines of
  // the log are about them.
  void expect_no_effect_of_other_bytes(const std::vector<std::string>& tls) const {
    const std::uint16_t port = free_port();
    const auto job = with(with(small_run("ar", at("run")),
                               {"--transport", "tcp", "--steps", "100000000", "--checkpoint-every",
                                "0.5", "--log-every", "100", "--lost-after", "0"}),
                          tls);
    Process first(start("torchrun", 0, 2, port, job));
    std::vector<FileDescriptor> held;
    const auto scan = [&](const std::string& bytes) {
      FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in to{};
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 &&
             std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      held.push_back(std::move(socket));
    };
    scan("GET / HTTP/1.0\r\n\r\n");
    scan("");
    Process second(start("torchrun", 1, 2, port, job));
    ASSERT_TRUE(has_begun(at("run"))) << first.so_far().describe() << second.so_far().describe();
    for (int i = 0; i < 20; ++i) scan(std::string(100, static_cast<char>(i)));
    fs::remove(at("run/checkpoint/latest"));
    EXPECT_TRUE(has_begun(at("run"))) << first.so_far().describe();  // it continues
    first.signal(SIGTERM);
    const auto end = first.wait();
    EXPECT_EQ(end.exit_code, 4) << end.describe();
    EXPECT_EQ(second.wait().exit_code, 0);
    EXPECT_GE(lines_with(end.err, "control: dropped a connection"), 1U) << end.err;
    EXPECT_LE(lines_with(end.err, "control: dropped a connection"), 8U) << end.err;  // at a rate
    EXPECT_EQ(summary_of(at("run"))["lost_ranks"], json::array());
  }

  const TemporaryDirectory folder_;
  const std::string tls_ = made_certificates(at("tls"));
};

TEST_F(TlsJob, TrainsToTheSameModelAsWithoutTls) {
  for (const std::string transport : {"tcp", "auto"}) {
    SCOPED_TRACE(transport);
    const std::string plain = "plain-" + transport, secure = "secure-" + transport;
    const auto without = run_process(launched("ar", plain, {"--transport", transport}));
    ASSERT_EQ(without.exit_code, 0) << without.describe();
    const auto with_tls =
        run_process(launched("ar", secure, {"--transport", transport, "--tls", tls_}));
    ASSERT_EQ(with_tls.exit_code, 0) << with_tls.describe();
    EXPECT_EQ(lines_with(with_tls.err, "control:"), 0U) << with_tls.err;
    expect_equal_models(plain, secure);
  }
}

// One option of `launch` is enough for all its processes.
TEST_F(TlsJob, LaunchPassesTheFolderOn) {
  const auto result = run_process(launched("sgp", "run", {"--transport", "tcp"}, {"--tls", tls_}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(summary_of(at("run"))["options"]["tls"], tls_);
}

// What process 1 and process 0 say to each other: only TLS records, and no name of a message.
TEST_F(TlsJob, NothingIsReadableOnTheWire) {
  for (const bool encrypts : {false, true}) {
    SCOPED_TRACE(encrypts);
    const std::uint16_t port = free_port();
    Relay relay(port);
    const auto behind = static_cast<std::uint16_t>(
        std::stoi(relay.address().substr(relay.address().find(':') + 1)));
    const auto job =
        with(small_run("ar", at(encrypts ? "secure" : "plain")),
             encrypts ? std::vector<std::string>{"--tls", tls_} : std::vector<std::string>{});
    Process first(start("torchrun", 0, 2, port, job));
    Process second(start("torchrun", 1, 2, behind, job));
    const auto end = second.wait();
    EXPECT_EQ(end.exit_code, 0) << end.describe();
    EXPECT_EQ(first.wait().exit_code, 0);
    const std::string seen = relay.seen();
    EXPECT_GT(seen.size(), 1000U);
    EXPECT_EQ(has(seen, "grapevine::"), !encrypts);
    EXPECT_EQ(seen.substr(0, 2) == "\x16\x03", encrypts);  // a record of a handshake
  }
}

TEST_F(TlsJob, AKilledProcessReturns) {
  const std::uint16_t port = free_port();
  const auto job = with(small_run("sgp", at("run")),
                        {"--tls", tls_, "--transport", "tcp", "--steps", "100000000",
                         "--checkpoint-every", "0.5", "--log-every", "100", "--lost-after", "0"});
  std::vector<std::unique_ptr<Process>> processes;
  const auto make = [&](int process) {
    return std::unique_ptr<Process>(new Process(start("torchrun", process, 3, port, job)));
  };
  for (int process = 0; process < 3; ++process) processes.push_back(make(process));
  ASSERT_TRUE(has_begun(at("run"))) << processes[0]->so_far().describe();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const auto other = run_process({"train", "--join", address, "--tls", tls_, "--trust-fabric"});
  EXPECT_TRUE(has(ProcessResult::last_line(other.err), "trust-fabric = true, process 0 with false"))
      << "it waits for no place: " << other.describe();
  for (const bool by_address : {false, true}) {
    processes[2]->signal(SIGKILL);
    processes[2]->wait();
    processes[2] = by_address ? std::make_unique<Process>(std::vector<std::string>{
                                    "train", "--join", address, "--tls", tls_})
                              : make(2);
    EXPECT_TRUE(processes[0]->wait_for_output("has joined again"))
        << processes[0]->so_far().describe() << processes[2]->so_far().describe();
    processes[0]->forget_output();
  }
  processes[0]->signal(SIGTERM);
  const auto head = processes[0]->wait();
  EXPECT_EQ(head.exit_code, 4) << head.describe();
  EXPECT_EQ(summary_of(at("run"))["lost_ranks"], json::array());
  for (const int process : {1, 2}) {
    const auto end = processes[static_cast<std::size_t>(process)]->wait();
    EXPECT_EQ(end.exit_code, 0) << end.describe();
  }
}

// ---- processes that do not fit together

TEST_F(TlsJob, OneSideWithoutTlsIsOneClearLine) {
  const Two two = run_two({"--tls", tls_}, {});
  EXPECT_EQ(two.second.exit_code, 2) << two.second.describe();
  EXPECT_TRUE(
      has(ProcessResult::last_line(two.second.err), "it uses TLS and this process does not"))
      << two.second.err;
  EXPECT_NE(two.first.exit_code, 0) << two.first.describe();
  EXPECT_TRUE(has(two.first.err, "control: dropped a connection from 127.0.0.1")) << two.first.err;
  EXPECT_TRUE(has(ProcessResult::last_line(two.first.err), "error: ")) << two.first.err;
}

TEST_F(TlsJob, TheOtherSideWithoutTlsIsOneClearLine) {
  const Two two = run_two({}, {"--tls", tls_});
  EXPECT_EQ(two.second.exit_code, 2) << two.second.describe();
  EXPECT_TRUE(has(ProcessResult::last_line(two.second.err), "does not speak TLS"))
      << two.second.err;
  EXPECT_NE(two.first.exit_code, 0) << two.first.describe();
  EXPECT_TRUE(has(ProcessResult::last_line(two.first.err), "error: ")) << two.first.err;
}

TEST_F(TlsJob, AnotherAuthorityIsOneClearLine) {
  const Two two = run_two({"--tls", tls_}, {"--tls", made_certificates(at("other"))});
  EXPECT_EQ(two.second.exit_code, 2) << two.second.describe();
  EXPECT_TRUE(has(ProcessResult::last_line(two.second.err), "its certificate is not accepted"))
      << two.second.err;
  EXPECT_NE(two.first.exit_code, 0) << two.first.describe();
  EXPECT_EQ(lines_with(two.first.err, "control: dropped a connection"), 1U) << two.first.err;
  EXPECT_TRUE(has(two.first.err, "certificate")) << two.first.err;
}

TEST_F(TlsJob, OtherBytesAtThePortHaveNoEffect) {
  expect_no_effect_of_other_bytes({"--tls", tls_});
}

TEST_F(TlsJob, OtherBytesAtThePlainPortHaveNoEffect) { expect_no_effect_of_other_bytes({}); }

// ---- refused before anything starts

class TlsFolder : public TlsJob {
 protected:
  void expect_refused(const std::vector<std::string>& arguments, const std::string& folder,
                      const std::string& file, const std::string& why) {
    const auto result = run_process(with(arguments, {"--tls", at(folder)}));
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    const std::string line = ProcessResult::last_line(result.err);
    EXPECT_TRUE(has(line, at(folder) + "/" + file)) << line;
    EXPECT_TRUE(has(line, why)) << line;
    EXPECT_FALSE(fs::exists(at("none")));
  }
  void expect_refused(const std::string& folder, const std::string& file, const std::string& why) {
    SCOPED_TRACE(folder);
    expect_refused({"node", "--listen", "127.0.0.1:0"}, folder, file, why);
  }
  std::string copy(const std::string& name) const {
    fs::copy(tls_, at(name));
    return name;
  }
};

TEST_F(TlsFolder, IsNamedWithWhatIsWrongInIt) {
  expect_refused("nowhere", "ca.pem", "No such file");
  for (const std::string file : {"ca.pem", "cert.pem", "key.pem"}) {
    const std::string folder = copy("without-" + file);
    fs::remove(at(folder + "/" + file));
    expect_refused(folder, file, "No such file");
  }
  expired_certificates(at("expired"));
  expect_refused("expired", "cert.pem", "expired on");
  made_certificates(at("other"));
  const std::string mixed = copy("mixed");
  fs::copy_file(at("other/key.pem"), at("mixed/key.pem"), fs::copy_options::overwrite_existing);
  expect_refused(mixed, "key.pem", "is not the key of cert.pem");
  const std::string foreign = copy("foreign");
  fs::copy_file(at("other/ca.pem"), at("foreign/ca.pem"), fs::copy_options::overwrite_existing);
  expect_refused(foreign, "cert.pem", "ca.pem");
  const std::string open = copy("open");
  fs::permissions(at("open/key.pem"), fs::perms(0644));
  expect_refused(open, "key.pem", "chmod 600");
}

TEST_F(TlsFolder, IsReadByEveryVerbBeforeItsWork) {
  expired_certificates(at("expired"));
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{small_run("ar", at("none")),
                                             launched("ar", "none", {}),
                                             {"train", "--join", "127.0.0.1:9"},
                                             {"train", "--cluster", "127.0.0.1:9"},
                                             {"bench", "p2p", "--transport", "tcp"}}) {
    SCOPED_TRACE(arguments.front());
    expect_refused(arguments, "expired", "cert.pem", "expired on");
  }
  const auto launch = run_process(launched("ar", "none", {}, {"--tls", at("expired")}));
  EXPECT_EQ(launch.exit_code, 2) << launch.describe();
  EXPECT_TRUE(has(launch.err, "expired on")) << launch.err;
}

TEST_F(TlsFolder, UcxBetweenHostsNeedsTrust) {
  const auto job = with(small_run("ar", at("none")), {"--tls", tls_, "--transport", "ucx"});
  const std::vector<std::string> two_hosts = {"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1"};
  const auto refused = start("torchrun", 0, 2, free_port(), job, two_hosts).wait();
  EXPECT_EQ(refused.exit_code, 2) << refused.describe();
  const std::string line = ProcessResult::last_line(refused.err);
  EXPECT_TRUE(has(line, "--transport ucx with --tls") || has(line, "UCX is not in this build"))
      << line;
  EXPECT_FALSE(fs::exists(at("none")));
  // With trust the job begins, and waits for the other process.
  if (has(line, "not in this build")) return;
  const auto trusting = with(job, {"--trust-fabric", "--join-timeout", "1"});
  const auto waits = start("torchrun", 0, 2, free_port(), trusting, two_hosts).wait();
  EXPECT_TRUE(has(ProcessResult::last_line(waits.err), "join")) << waits.describe();
  const auto alone = run_process(with(small_run("ar", at("none")), {"--trust-fabric"}));
  EXPECT_EQ(alone.exit_code, 2) << alone.describe();
  EXPECT_TRUE(has(alone.err, "--trust-fabric goes with --tls")) << alone.err;
}

}  // namespace tls_job_test
}  // namespace grapevine
