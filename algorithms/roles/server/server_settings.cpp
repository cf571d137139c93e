#include "algorithms/roles/server/server_settings.hpp"

#include <memory>
#include <utility>

#include "algorithms/roles/server/server.hpp"
#include "algorithms/roles/server/server_client.hpp"
#include "messages/check.hpp"

namespace grapevine {

// The list of rules.
const std::vector<const ServerRule*>& server_rules() {
  static const std::vector<const ServerRule*> rules = {&gem_rule(),      &downpour_rule(),
                                                       &adaptive_rule(), &agn_rule(),
                                                       &easgd_rule(),    &delayed_nesterov_rule()};
  return rules;
}

void ClientRule::commit_into(at::Tensor&, const Slice&, const FrozenTensor&, const ModelState&) {
  GRAPEVINE_CHECK(false, "a grant to a client whose rule takes no turns");
}

at::Tensor ClientRule::step_in(const Slice&) const {
  GRAPEVINE_CHECK(false, "a client whose rule takes no turns waits for one");
}

SliceRule::Change SliceRule::change(const FrozenTensor&, const FrozenTensor& offered,
                                    std::int64_t) {
  return {offered, 1};
}

namespace {

constexpr std::int64_t kMaxServers = 4096;

void read_server(KeyReader& keys, Plan& plan) {
  auto server = std::make_shared<ServerSettings>();
  std::vector<std::pair<std::string, const ServerRule*>> names;
  for (const ServerRule* rule : server_rules()) names.emplace_back(rule->name, rule);
  server->rule = keys.choice<const ServerRule*>(
      "rule", "gem", names, "how clients compute commits and how servers apply them");
  plan.local.pack =
      read_pack(keys, {server->rule->pack},
                std::string("exchange = 'server': the rule of the servers exchanges ") +
                    pack_name(server->rule->pack) + "s");
  plan.servers = static_cast<std::int32_t>(
      keys.whole("servers", 1, 1, "ranks that hold a slice of the parameters each", kMaxServers));
  plan.local.clip = read_clip(keys, false);
  for (const ServerRule* rule : server_rules())
    keys.where("rule", rule->name, [&] {
      rule->read(keys, plan, *server);
      if (!rule->takes_turns)
        server->overlap = keys.flag("overlap", false, "exchange while the worker computes");
    });
  plan.compression = read_compression(keys, {});
  keys.only_where("compress", !plan.compression.enabled() || plan.local.pack != Pack::model,
                  "rule = '" + server->rule->name +
                      "': its clients offer models, of which what is not sent would count as 0, "
                      "choose another rule or compress = 'none'");
  plan.settings = std::move(server);
}

// The rules that commit plain steps have no place for another optimizer's.
Expected<void> prepare_server(SharedParts& parts, std::int32_t) {
  const ServerRule& rule = *server_settings(parts).rule;
  if (rule.has_optimizer) return {};
  const std::string what =
      " does not fit rule = '" + rule.name + "': its clients commit steps along the gradient, ";
  if (parts.optimizer.name != "sgd")
    return bad_input("--optimizer " + parts.optimizer.name + what +
                     "use sgd, or rule = 'easgd' or 'delayed-nesterov'");
  if (parts.optimizer.nesterov)
    return bad_input("--nesterov" + what + "drop it, or use rule = 'easgd' or 'delayed-nesterov'");
  return {};
}

}  // namespace

const RoleType& server_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "server";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "clients compute at a copy of a central variable and commit to its servers";
    role.read = &read_server;
    role.prepare = &prepare_server;
    role.make = &make_from_context<ServerClient>;
    role.make_server = [](ServerContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Server>(std::move(c));
    };
    role.tolerates_lost_peer = true;
    role.changes_members = [](const Plan&) { return true; };
    role.allows_ranks_past_the_end = false;
    role.announces_end = [](const Plan&) { return true; };
    role.drops_gradients = [](const Plan& plan) {
      return data_as<ServerSettings>(plan.settings).rule->takes_turns;
    };
    role.uses_momentum = [](const Plan& plan) {
      return data_as<ServerSettings>(plan.settings).rule->uses_momentum;
    };
    return role;
  }();
  return type;
}

}  // namespace grapevine
