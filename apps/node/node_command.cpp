#include "apps/node/node_command.hpp"

#include <fmt/format.h>

#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "apps/console/verb_options.hpp"
#include "apps/node/make_certificates.hpp"
#include "apps/node/node_link.hpp"
#include "apps/node/node_service.hpp"
#include "messages/text/number_text.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

constexpr double kMaxSeconds = 1e5;

class NodeCommand final : public Command {
 public:
  void declare(CLI::App& app) override {
    app_ = &app;
    add_option(app, "listen", options_.listen, "HOST:PORT to listen on; port 0: one that is free");
    add_option(app, "join", options_.join, "HOST:PORT of the first node [this is the first node]");
    add_option(app, "slots", options_.slots, "processes of a job that this node runs at a time");
    add_option(app, "secret-file", options_.secret_file,
               "file with the secret that all nodes and submitters share "
               "[GRAPEVINE_CLUSTER_SECRET]");
    add_option(app, "tls", options_.tls,
               "folder with certificates: encrypt what this node and the processes of its jobs "
               "exchange over the network, which all nodes and submitters must do [off]");
    add_option(app, "join-timeout", options_.join_timeout_s,
               "seconds to try to reach the first node");
    add_option(app, "timeout", options_.timeout_s,
               "seconds of silence after which another node counts as dead");
    add_switch(app, "json", options_.json, "print events as JSON objects, one per line");
    add_option(app, "config", config_, "TOML file with options");
    declare_certificates(app);
    app.footer(
        "Then, from anywhere that reaches the first node: grapevine train --cluster HOST:PORT …\n"
        "Every user with the secret can run jobs here as this user. See docs/cluster.md.");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    if (auto read = read_config_file(*app_, config_); !read) return read;
    certificates_.json = options_.json;
    if (!certificates_.folder.empty()) return make_certificates(certificates_, console.out);
    std::signal(SIGPIPE, SIG_IGN);  // the reader of the output may end: the node continues
    raise_descriptor_limit();
    if (options_.listen.empty()) return bad_input("--listen is missing: give HOST:PORT");
    auto listen = parse_listen_address("--listen", options_.listen);
    if (!listen) return listen.error();
    std::optional<ListenAddress> first;
    if (!options_.join.empty()) {
      auto parsed = parse_listen_address("--join", options_.join, 1);
      if (!parsed) return parsed.error();
      first = std::move(*parsed);
    }
    if (auto checked = check_numbers(); !checked) return checked;
    auto tls = tcp::load_certificates(options_.tls);
    if (!tls) return tls.error();
    auto secret = read_secret(options_.secret_file);
    if (!secret) return secret.error();
    if (secret->empty() && !is_loopback_host(listen->host))
      return bad_input(
          "--listen " + options_.listen +
          ": every user who reaches that port could run jobs here: give --secret-file FILE, "
          "or listen on 127.0.0.1");
    if (secret->empty())
      spdlog::warn("no --secret-file: every user of this machine can run jobs here as this user");
    else if (secret->size() < kShortestGoodSecret)
      spdlog::warn("the secret has {} characters: use {} random ones or more, as it can be guessed",
                   secret->size(), kShortestGoodSecret);
    return NodeService(options_, std::move(*listen), std::move(first), std::move(*secret),
                       *std::move(tls), console)
        .run();
  }

 private:
  // Not from the environment: an option that is meant for another verb must not write keys.
  void declare_certificates(CLI::App& app) {
    add_option(app, "make-certificates", certificates_.folder,
               "write new certificates for --tls to this folder, and end")
        ->envname("");
    add_list(app, "hosts", certificates_.hosts,
             "with --make-certificates: a folder with a key of its own for each of these machines, "
             "comma-separated, valid for the names and addresses NAME=ADDRESS alone "
             "[one folder for all machines]")
        ->envname("");
    add_option(app, "days", certificates_.days,
               "with --make-certificates: days for which they are valid")
        ->envname("");
    add_switch(app, "overwrite", certificates_.overwrite,
               "with --make-certificates: replace those that are there")
        ->envname("");
  }

  Expected<void> check_numbers() const {
    if (options_.slots < 1 || options_.slots > kMaxSlots)
      return bad_input(fmt::format("--slots {}: expected 1..{}", options_.slots, kMaxSlots));
    if (!(options_.join_timeout_s > 0 && options_.join_timeout_s <= kMaxSeconds))
      return bad_input("--join-timeout " + number_text(options_.join_timeout_s) +
                       ": expected seconds, more than 0 and at most 100000");
    if (!(options_.timeout_s >= to_seconds(kLeastNodeSilence) && options_.timeout_s <= kMaxSeconds))
      return bad_input("--timeout " + number_text(options_.timeout_s) + ": expected seconds, " +
                       number_text(to_seconds(kLeastNodeSilence)) + "..100000");
    return {};
  }

  CLI::App* app_ = nullptr;
  NodeOptions options_;
  CertificateOptions certificates_;
  std::string config_;
};

}  // namespace

std::unique_ptr<Command> make_node_command() { return std::make_unique<NodeCommand>(); }

}  // namespace grapevine
