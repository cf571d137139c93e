// Nodes with --tls, and the certificates that `node` makes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/node/make_certificates.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "tests/apps/cluster/tls_folder.hpp"
#include "tests/apps/node/relay.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace tls_node_test {

namespace fs = std::filesystem;
using cluster_test::made_certificates;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class TlsNode : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }

  std::unique_ptr<Process> node(const std::vector<std::string>& more) const {
    auto made = std::make_unique<Process>(with({"node", "--listen", "127.0.0.1:0"}, more));
    EXPECT_TRUE(made->wait_for_output("listening on ")) << made->so_far().describe();
    return made;
  }
  static std::string address_of(const Process& node) {
    const std::string marker = "listening on ";
    const std::string& out = node.so_far().out;
    const std::size_t begin = out.find(marker) + marker.size();
    return out.substr(begin, out.find('\n', begin) - begin);
  }

  const TemporaryDirectory folder_;
};

TEST_F(TlsNode, APoolTrainsAndShowsNothingOnTheWire) {
  const std::string tls = made_certificates(at("tls"));
  const auto first = node({"--tls", tls, "--slots", "1"});
  const std::string address = address_of(*first);
  Relay relay(static_cast<std::uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  const auto second = node({"--tls", tls, "--join", relay.address()});
  ASSERT_TRUE(first->wait_for_output("2 nodes")) << second->so_far().describe();
  const auto trained =
      run_process(with(small_run("ar", at("run")),
                       {"--cluster", relay.address(), "--tls", tls, "--transport", "tcp"}));
  EXPECT_EQ(trained.exit_code, 0) << trained.describe();
  EXPECT_EQ(summary_of(at("run"))["workers"], 2);
  EXPECT_EQ(summary_of(at("run"))["options"]["tls"], tls);  // of the node, for its processes
  EXPECT_GT(relay.seen().size(), 1000U);
  EXPECT_FALSE(has(relay.seen(), "grapevine::"));
  EXPECT_EQ(relay.seen().substr(0, 2), "\x16\x03");
}

TEST_F(TlsNode, TheirJobIsControlledOverTls) {
  const std::string tls = made_certificates(at("tls"));
  const auto first = node({"--tls", tls, "--slots", "1"});
  Process job(with(small_run("ar", at("run")),
                   {"--cluster", address_of(*first), "--tls", tls, "--steps", "1000000"}));
  ASSERT_TRUE(job.wait_for_output("control: 127.0.0.1:")) << job.so_far().describe();
  ProcessOptions no_token;
  no_token.environment = {"GRAPEVINE_JOB_TOKEN", "GRAPEVINE_CLUSTER_SECRET"};
  const std::vector<std::string> status = {"control", address_of(*first), "status"};
  const auto shown = run_process(with(status, {"--tls", tls}), no_token);
  EXPECT_EQ(shown.exit_code, 0) << shown.describe();
  EXPECT_TRUE(has(shown.out, "in 1 process")) << shown.out;
  const auto plain = run_process(status, no_token);
  EXPECT_EQ(plain.exit_code, 2) << plain.describe();
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().exit_code, 4) << job.so_far().describe();
}

TEST_F(TlsNode, ProcessesThatDoNotFitAreRefused) {
  const std::string tls = made_certificates(at("tls")), other = made_certificates(at("other"));
  const auto first = node({"--tls", tls});
  const auto plain = node({});
  struct Case {
    std::string address;
    std::vector<std::string> more;
    std::string why;
  };
  for (const Case& c :
       std::vector<Case>{{address_of(*first), {}, "it uses TLS and this process does not"},
                         {address_of(*first), {"--tls", other}, "its certificate is not accepted"},
                         {address_of(*plain), {"--tls", tls}, "does not speak TLS"}}) {
    SCOPED_TRACE(c.why);
    const auto submitted =
        run_process(with(with(small_run("ar", at("run")), {"--cluster", c.address}), c.more));
    EXPECT_EQ(submitted.exit_code, 2) << submitted.describe();
    EXPECT_TRUE(has(ProcessResult::last_line(submitted.err), c.why)) << submitted.describe();
    const auto joined =
        run_process(with({"node", "--listen", "127.0.0.1:0", "--join", c.address}, c.more));
    EXPECT_EQ(joined.exit_code, 2) << joined.describe();
    EXPECT_TRUE(has(ProcessResult::last_line(joined.err), c.why)) << joined.describe();
  }
  EXPECT_TRUE(first->wait_for_output("control: dropped a connection")) << first->so_far().err;
  first->signal(SIGTERM);
  EXPECT_EQ(first->wait().exit_code, 0);
}

// ---- --make-certificates

mode_t mode_of(const std::string& file) {
  struct stat status {};
  EXPECT_EQ(::stat(file.c_str(), &status), 0) << file;
  return status.st_mode & 0777U;
}

TEST(MakeCertificates, SaysWhatItWroteAndOverwritesNothing) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "deep/tls").string();
  const auto made = run_process({"node", "--make-certificates", path, "--days", "10"});
  ASSERT_EQ(made.exit_code, 0) << made.describe();
  for (const std::string& part :
       {path, std::string("key.pem"), std::string("0600"), std::string("valid for 10 days"),
        std::string("Copy this folder")})
    EXPECT_TRUE(has(made.out, part)) << part << made.out;
  EXPECT_EQ(mode_of(path + "/key.pem"), 0600U);
  EXPECT_TRUE(tcp::TlsContext::load(path).ok());
  const std::string before = read_file(path + "/key.pem");
  ProcessOptions overwrites;  // of another verb
  overwrites.environment = {"GRAPEVINE_OVERWRITE=true"};
  const auto again = run_process({"node", "--make-certificates", path}, overwrites);
  EXPECT_EQ(again.exit_code, 2) << again.describe();
  EXPECT_TRUE(has(again.err, "--overwrite")) << again.err;
  EXPECT_EQ(read_file(path + "/key.pem"), before);
  const auto replaced = run_process({"node", "--make-certificates", path, "--overwrite"});
  EXPECT_EQ(replaced.exit_code, 0) << replaced.describe();
  EXPECT_NE(read_file(path + "/key.pem"), before);
  EXPECT_EQ(mode_of(path + "/key.pem"), 0600U);
}

TEST(MakeCertificates, ProgramsGetOneObject) {
  const TemporaryDirectory folder;
  const std::string one = (folder.path() / "one").string(),
                    each = (folder.path() / "each").string();
  const auto shared = run_process({"node", "--make-certificates", one, "--json"});
  ASSERT_EQ(shared.exit_code, 0) << shared.describe();
  const auto written = nlohmann::json::parse(shared.out);
  EXPECT_EQ(written["event"], "certificates");
  EXPECT_EQ(written["days"], 825);
  EXPECT_TRUE(written["at_once"].is_boolean()) << "it depends on the file system";
  ASSERT_EQ(written["folders"].size(), 1U) << shared.out;
  EXPECT_EQ(written["folders"][0]["folder"], one);
  EXPECT_TRUE(written["folders"][0]["host"].is_null());
  const auto own = run_process({"node", "--make-certificates", each, "--hosts", "a,b", "--json"});
  ASSERT_EQ(own.exit_code, 0) << own.describe();
  const auto folders = nlohmann::json::parse(own.out)["folders"];
  ASSERT_EQ(folders.size(), 2U) << own.out;
  EXPECT_EQ(folders[1]["folder"], each + "/b");
  EXPECT_EQ(folders[1]["host"], "b");
  EXPECT_EQ(folders[1]["names"], nlohmann::json({"b"}));
}

// The names are in the certificates, and a client compares them with what it dials.
TEST(MakeCertificates, HostsHaveOtherNamesAndAddresses) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "tls").string();
  const auto made = run_process(
      {"node", "--make-certificates", path, "--hosts", "node1=10.0.0.1=fd00::1,node2=10.0.0.2"});
  ASSERT_EQ(made.exit_code, 0) << made.describe();
  EXPECT_TRUE(has(made.out, "for node1, 10.0.0.1, fd00::1")) << made.out;
  EXPECT_TRUE(has(made.out, "refuses its certificate")) << made.out;
  for (const std::string host : {"node1", "node2"}) {
    EXPECT_TRUE(tcp::checks_hosts(path + "/" + host));
    EXPECT_TRUE(tcp::TlsContext::load(path + "/" + host).ok());
  }
}

// A name with a port would be one that no process dials.
TEST(MakeCertificates, APortIsNoPartOfAName) {
  const TemporaryDirectory folder;
  const std::map<std::string, std::string> to_write = {{"10.0.0.1:29400", "10.0.0.1"},
                                                       {"node1.lan:29400", "node1.lan"},
                                                       {"node1:", "node1"},
                                                       {"fd00::1:x", "fd00::1"},
                                                       {"fd00::1:29400", "fd00::1"},
                                                       {"[fd00::1]:29400", "fd00::1"},
                                                       {"[fd00::1]", "fd00::1"}};
  for (const auto& [wrong, right] : to_write) {
    CertificateOptions options;
    options.folder = (folder.path() / "tls").string();
    options.hosts = {"node1=" + wrong};
    std::ostringstream out;
    const auto made = make_certificates(options, out);
    ASSERT_FALSE(made.ok()) << wrong;
    EXPECT_EQ(made.error().code, Errc::bad_input);
    for (const std::string& part : {"--hosts 'node1=" + wrong + "'", "'" + wrong + "' is neither",
                                    "certificates name no ports, write '" + right + "'"})
      EXPECT_TRUE(has(made.error().message, part)) << made.error().message;
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
    EXPECT_FALSE(fs::exists(options.folder));
  }
  CertificateOptions twice;
  twice.folder = (folder.path() / "tls").string();
  twice.hosts = {"node1=10.0.0.1", "node2=::ffff:10.0.0.1"};
  std::ostringstream out;
  const auto made = make_certificates(twice, out);
  ASSERT_FALSE(made.ok());
  EXPECT_TRUE(has(made.error().message, "'::ffff:10.0.0.1' is named twice"))
      << made.error().message;
}

TEST(MakeCertificates, EachHostMayHaveAKeyOfItsOwn) {
  const TemporaryDirectory folder;
  const std::string path = folder.path().string();
  const auto made =
      run_process({"node", "--make-certificates", path, "--hosts", "node1,node2.lan"});
  ASSERT_EQ(made.exit_code, 0) << made.describe();
  EXPECT_EQ(read_file(path + "/node1/ca.pem"), read_file(path + "/node2.lan/ca.pem"));
  EXPECT_NE(read_file(path + "/node1/key.pem"), read_file(path + "/node2.lan/key.pem"));
  for (const std::string host : {"node1", "node2.lan"}) {
    EXPECT_TRUE(tcp::TlsContext::load(path + "/" + host).ok());
    EXPECT_EQ(mode_of(path + "/" + host + "/key.pem"), 0600U);
  }
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(path)) names.insert(entry.path().filename());
  EXPECT_EQ(names, (std::set<std::string>{"node1", "node2.lan"}));
  // All or nothing: the new folder is not written beside one that exists.
  const auto more = run_process({"node", "--make-certificates", path, "--hosts", "node3,node1"});
  EXPECT_EQ(more.exit_code, 2) << more.describe();
  EXPECT_FALSE(fs::exists(path + "/node3"));
}

// All names below the folder, with the content of each file.
std::map<std::string, std::string> content_of(const fs::path& folder) {
  std::map<std::string, std::string> content;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    content[entry.path().lexically_relative(folder).string()] =
        entry.is_regular_file() ? read_file(entry.path().string()) : "";
  return content;
}

// A disk that is full amid each of the files: the folder is as it was, and nothing else is left.
TEST(MakeCertificates, AFailureLeavesTheOldOnes) {
  const TemporaryDirectory folder;
  CertificateOptions options;
  options.folder = (folder.path() / "tls").string();
  options.hosts = {"a", std::string(60, 'b')};
  std::ostringstream out;
  const auto make_with = [&](rlim_t bytes) {  // of a file
    const FileSizeLimit full(bytes);
    return make_certificates(options, out).ok();
  };
  EXPECT_FALSE(make_with(100));
  EXPECT_TRUE(content_of(folder.path()).empty());
  EXPECT_TRUE(make_certificates(options, out).ok());
  options.overwrite = true;
  std::ofstream(options.folder + "/notes") << "mine";
  fs::create_directory_symlink("a", options.folder + "/link");
  int failures = 0;
  for (rlim_t bytes = 0; bytes < 1200; bytes += 40) {
    const auto before = content_of(folder.path());
    const bool done = make_with(bytes);
    failures += done ? 0 : 1;
    const auto after = content_of(folder.path());
    EXPECT_EQ(after == before, !done) << bytes << " bytes";
    EXPECT_EQ(after.size(), before.size()) << bytes << " bytes";
  }
  EXPECT_GT(failures, 5);
  EXPECT_LT(failures, 30);
  EXPECT_EQ(read_file(options.folder + "/notes"), "mine");
  EXPECT_TRUE(fs::is_symlink(options.folder + "/link"));
  for (const std::string& host : options.hosts)
    EXPECT_TRUE(tcp::TlsContext::load(options.folder + "/" + host).ok());
  EXPECT_EQ(read_file(options.folder + "/a/ca.pem"),
            read_file(options.folder + "/" + options.hosts[1] + "/ca.pem"));
}

// A reader of the folder never finds a set of files that are not for each other.
TEST(MakeCertificates, TheFolderIsWholeAtAnyMoment) {
  const TemporaryDirectory folder;
  CertificateOptions options;
  options.folder = (folder.path() / "tls").string();
  std::ostringstream out;
  ASSERT_TRUE(make_certificates(options, out).ok());
  options.overwrite = true;
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) {
      // One folder, whatever is renamed meanwhile.
      const int descriptor = ::open(options.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
      ASSERT_GE(descriptor, 0);
      std::set<std::string> names;
      for (const char* name : tcp::kCertificateFiles)
        if (::faccessat(descriptor, name, R_OK, 0) == 0) names.insert(name);
      // Of an old one, the files are removed after it has left its place.
      struct stat found {
      }, now{};
      ::fstat(descriptor, &found);
      ASSERT_EQ(::stat(options.folder.c_str(), &now), 0);
      if (found.st_ino == now.st_ino) {
        EXPECT_EQ(names.size(), 3U);
      }
      ::close(descriptor);
    }
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(make_certificates(options, out).ok());
  over = true;
  reader.join();
}

TEST(MakeCertificates, TheCurrentFolderIsNotReplaced) {
  const TemporaryDirectory folder;
  ProcessOptions inside;
  inside.directory = folder.path().string();
  const auto made = run_process({"node", "--make-certificates", "."}, inside);
  EXPECT_EQ(made.exit_code, 0) << made.describe();
  EXPECT_TRUE(tcp::TlsContext::load(folder.path().string()).ok());
  const auto again = run_process({"node", "--make-certificates", ".", "--overwrite"}, inside);
  EXPECT_EQ(again.exit_code, 2) << again.describe();
  EXPECT_TRUE(has(again.err, "is the current folder")) << again.err;
}

TEST(MakeCertificates, BadValuesAreOneClearLine) {
  const TemporaryDirectory folder;
  const std::string path = (folder.path() / "tls").string();
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--days", "0"},
                                                        {"--days", "1000000"},
                                                        {"--hosts", "../x"},
                                                        {"--hosts", "a,a"},
                                                        {"--hosts", "a,A"},
                                                        {"--hosts", "a=10.0.0.1,b=10.0.0.1"},
                                                        {"--hosts", "a=,b"},
                                                        {"--hosts", "a=b/c"}}) {
    const auto result = run_process({"node", "--make-certificates", path, option, value});
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_TRUE(has(result.err, option)) << result.err;
    EXPECT_FALSE(fs::exists(path));
  }
  std::ofstream(path) << "x";
  const auto result = run_process({"node", "--make-certificates", path});
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_TRUE(has(result.err, "is no folder")) << result.err;
}

}  // namespace tls_node_test
}  // namespace grapevine
