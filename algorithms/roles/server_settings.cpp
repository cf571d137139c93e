#include "algorithms/roles/server_settings.hpp"

#include <memory>
#include <utility>

#include "algorithms/roles/server.hpp"
#include "algorithms/roles/server_client.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMaxServers = 4096;
constexpr double kMaxSeconds = 1e6;

void read_gem(KeyReader& keys, ServerSettings& server) {
  server.kappa = keys.number("kappa", server.kappa, {},
                             "energy of the central variable over that of the proxy");
  server.strict =
      keys.choice<bool>("section", "strict", {{"strict", true}, {"relaxed", false}},
                        "whether one client at a time is between its pull and its commit");
  server.section_timeout =
      keys.number("section_timeout", server.section_timeout, {0, kMaxSeconds, true},
                  "seconds after which a client that stalls loses its turn");
}

void read_easgd(KeyReader& keys, ServerSettings& server) {
  server.elasticity = keys.number("elasticity", server.elasticity, {}, "beta, workers times alpha");
  server.synchronous = keys.flag("synchronous", false, "whether all clients wait for each other");
}

void read_server(KeyReader& keys, Plan& plan) {
  auto server = std::make_shared<ServerSettings>();
  server->rule = keys.choice<ServerRule>("rule", "gem",
                                         {{"gem", ServerRule::gem},
                                          {"downpour", ServerRule::downpour},
                                          {"adaptive", ServerRule::adaptive},
                                          {"agn", ServerRule::agn},
                                          {"easgd", ServerRule::easgd}},
                                         "how clients compute commits and how servers apply them");
  const bool easgd = server->rule == ServerRule::easgd;
  plan.local.pack =
      read_pack(keys, {easgd ? Pack::model : Pack::gradient},
                std::string("exchange = 'server': the rule of the servers exchanges ") +
                    (easgd ? "models" : "gradients"));
  plan.servers = static_cast<std::int32_t>(
      keys.whole("servers", 1, 1, "ranks that hold a slice of the parameters each", kMaxServers));
  // gem looks at the energy of each step by itself.
  keys.where_any("rule", {"downpour", "adaptive", "agn", "easgd"},
                 [&] { plan.local.local_steps = read_local_steps(keys); });
  plan.local.clip = read_clip(keys, false);
  keys.where("rule", "gem", [&] { read_gem(keys, *server); });
  keys.where("rule", "easgd", [&] { read_easgd(keys, *server); });
  plan.compression = read_compression(keys, {});
  keys.only_where("compress", !plan.compression.enabled() || !easgd,
                  "rule = 'easgd': its clients offer models, of which what is not sent would count "
                  "as 0, choose another rule or compress = 'none'");
  plan.settings = std::move(server);
}

// The rules that commit plain steps have no place for another optimizer's.
Expected<void> prepare_server(SharedParts& parts, std::int32_t) {
  const ServerRule rule = data_as<ServerSettings>(parts.plan.settings).rule;
  if (rule == ServerRule::easgd) return {};
  const std::string what = rule == ServerRule::gem ? "gem" : "downpour, adaptive or agn";
  if (parts.optimizer.name != "sgd")
    return bad_input("--optimizer " + parts.optimizer.name + " does not fit rule = '" + what +
                     "': clients commit steps along the gradient, use sgd, or rule = 'easgd'");
  if (parts.optimizer.nesterov)
    return bad_input("--nesterov does not fit rule = '" + what +
                     "': only easgd steps by an optimizer of its own, drop it");
  return {};
}

}  // namespace

const RoleType& server_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "server";
    role.summary = "clients compute at a copy of a central variable and commit to its servers";
    role.read = &read_server;
    role.prepare = &prepare_server;
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      return std::make_unique<ServerClient>(c.parts, c.rank, c.ranks, c.model,
                                            std::move(c.optimizer));
    };
    role.make_server = [](ServerContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Server>(c.parts, c.rank, std::move(c.clients), c.index, c.model);
    };
    role.tolerates_lost_peer = true;
    role.allows_ranks_past_the_end = false;
    role.announces_end = [](const Plan&) { return true; };
    role.uses_momentum = [](const Plan& plan) {
      const ServerRule rule = data_as<ServerSettings>(plan.settings).rule;
      return rule == ServerRule::gem || rule == ServerRule::easgd;
    };
    return role;
  }();
  return type;
}

}  // namespace grapevine
