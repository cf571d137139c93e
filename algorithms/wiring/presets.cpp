// The presets: wirings with names. Roles do not depend on the names.
#include <array>
#include <sstream>
#include <utility>

#include "algorithms/wiring/wiring.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

struct Row {
  const char* name;
  const char* title;
  const char* paper;
  const char* keys;  // "KEY=VALUE …"; others are as in a new Wiring
};

constexpr std::array<Row, 25> kTable = {{
    {"ar", "All-reduce SGD",
     "Patarasuk & Yuan 2009 (ring all-reduce); synchronous data parallelism",
     "exchange=aggregate pack=gradient"},
    {"sgp", "Stochastic Gradient Push", "Assran et al., ICML 2019, Algorithm 1",
     "exchange=gossip pack=model averaging=push-sum topology=exponential peers=1"},
    {"osgp", "Overlap Stochastic Gradient Push", "Assran et al., ICML 2019, Algorithm 2",
     "exchange=gossip pack=model averaging=push-sum topology=exponential peers=1 overlap=true "
     "staleness=0"},
    {"d-psgd", "Decentralized parallel SGD", "Lian et al., NeurIPS 2017, Algorithm 1",
     "exchange=gossip pack=model averaging=symmetric topology=exponential peers=1 update=after"},
    {"ad-psgd", "Asynchronous decentralized parallel SGD", "Lian et al., ICML 2018, Algorithm 1",
     "exchange=bilateral pack=model topology=bipartite-exponential peers=1"},
    {"eager-solo", "Eager-SGD with solo all-reduce", "Li et al., PPoPP 2020, Algorithm 2",
     "exchange=partial pack=gradient activation=solo staleness=10"},
    {"eager-majority", "Eager-SGD with majority all-reduce", "Li et al., PPoPP 2020, Algorithm 2",
     "exchange=partial pack=gradient activation=majority staleness=10"},
    {"eager-quorum", "Eager-SGD that waits for a number of ranks",
     "after Li et al., PPoPP 2020, section 4",
     "exchange=partial pack=gradient activation=quorum staleness=10"},
    {"wagma", "Wait-avoiding group model averaging SGD", "Li et al., TPDS 2021, Algorithm 2",
     "exchange=group pack=model staleness=10"},
    {"topk", "Top-k sparsified SGD with error feedback",
     "Shi et al., IJCAI 2019; Lin et al., ICLR 2018",
     "exchange=aggregate pack=gradient compress=top-k density=0.001 sparse_reduce=all-gather"},
    {"topk2", "Top-k, selected again from the sum", "Shi et al., ICDCS 2019",
     "exchange=aggregate pack=gradient compress=top-k density=0.001 "
     "sparse_reduce=all-gather-reselect"},
    {"gtopk", "Global top-k", "Shi et al., ICDCS 2019, Algorithms 2 and 3",
     "exchange=aggregate pack=gradient compress=top-k density=0.001 sparse_reduce=butterfly"},
    {"choco-sgd", "Gossip with compressed differences",
     "Koloskova, Stich, Jaggi, ICML 2019, Algorithm 2",
     "exchange=gossip pack=model averaging=symmetric topology=ring peers=1 compress=top-k "
     "density=0.1"},
    {"gem", "Gradient energy matching", "Hermans & Louppe 2018",
     "exchange=server rule=gem servers=1 kappa=1"},
    {"downpour", "DOWNPOUR", "Dean et al., NeurIPS 2012, section 4.1",
     "exchange=server rule=downpour servers=1 local_steps=1"},
    {"adaptive", "Staleness-aware asynchronous SGD",
     "Zhang et al., IJCAI 2016; DynSGD: Jiang et al., SIGMOD 2017",
     "exchange=server rule=adaptive servers=1 local_steps=1"},
    {"easgd", "Asynchronous elastic averaging SGD",
     "Zhang, Choromanska & LeCun, NeurIPS 2015, Algorithm 1",
     "exchange=server rule=easgd servers=1 local_steps=4 elasticity=0.9"},
    {"local-sgd", "Local SGD", "Stich, ICLR 2019; Lin et al., ICLR 2020",
     "exchange=aggregate pack=model local_steps=8"},
    {"diloco", "DiLoCo", "Douillard et al. 2023, Algorithm 1",
     "exchange=aggregate pack=difference local_steps=50 outer=nesterov"},
    {"slowmo", "SlowMo over local SGD", "Wang, Tantia, Ballas, Rabbat, ICLR 2020, Algorithm 1",
     "exchange=aggregate pack=difference local_steps=12 outer=slowmo outer_lr=1 "
     "outer_momentum=0.5"},
    {"sparseloco", "Sparse differences with a decaying residual",
     "SparseLoCo: Sarfi, Thérien, Lidin, Belilovsky 2025",
     "exchange=aggregate pack=difference local_steps=30 compress=top-k density=0.015625 "
     "residual_decay=0.95"},
    {"noloco", "Differences between pairs of ranks",
     "NoLoCo: Kolehmainen, Blagoev, Donaghy, Ersoy, Nies 2025, equations 1 to 3",
     "exchange=gossip pack=difference averaging=symmetric topology=round-robin peers=1 "
     "local_steps=50 outer=momentum outer_lr=0.7 outer_momentum=0.5"},
    {"qg-dsgdm", "Gossip with quasi-global momentum",
     "Lin, Karimireddy, Stich, Jaggi, ICML 2021, Algorithm 1",
     "exchange=gossip pack=model averaging=symmetric topology=ring peers=2 quasi_global=0.1"},
    {"gradient-tracking", "Gossip that tracks the mean gradient",
     "Di Lorenzo & Scutari 2016; Nedic, Olshevsky, Shi 2017",
     "exchange=gossip pack=model averaging=symmetric topology=ring peers=2 tracking=true"},
    {"decoupled-diloco", "Differences of a quorum of ranks",
     "Decoupled DiLoCo: Douillard et al. 2026, Algorithms 1 and 2",
     "exchange=partial pack=difference activation=quorum grace=0.1 scale=samples local_steps=24 "
     "outer=nesterov outer_momentum=0.5"},
}};

// The wiring of "KEY=VALUE …".
Expected<Wiring> parse_keys(const std::string& preset, const std::string& text) {
  Wiring wiring;
  std::istringstream keys(text);
  for (std::string assignment; keys >> assignment;) {
    const std::size_t at = assignment.find('=');
    if (at == std::string::npos)
      return bad_input("preset '" + preset + "': '" + assignment + "': expected KEY=VALUE");
    if (auto set = wiring.set(assignment.substr(0, at), assignment.substr(at + 1)); !set)
      return bad_input("preset '" + preset + "': " + set.error().message);
  }
  return wiring;
}

std::vector<Preset> make_presets() {
  std::vector<Preset> presets;
  for (const Row& row : kTable) {
    auto wiring = parse_keys(row.name, row.keys);
    GRAPEVINE_CHECK(wiring.ok(), wiring.error().message);
    presets.push_back({row.name, row.title, row.paper, *std::move(wiring)});
  }
  return presets;
}

// The list of presets.
std::vector<Preset>& all_presets() {
  static std::vector<Preset> all = make_presets();
  return all;
}

}  // namespace

const std::vector<Preset>& presets() { return all_presets(); }

Expected<void> register_preset(const std::string& name, const std::string& title,
                               const std::string& paper, const std::string& keys) {
  if (find_preset(name))
    return bad_input("preset '" + name + "' exists already: choose another name");
  auto wiring = parse_keys(name, keys);
  if (!wiring) return wiring.error();
  if (auto plan = resolve(*wiring); !plan)
    return bad_input("preset '" + name + "': " + plan.error().message);
  all_presets().push_back({name, title, paper, *std::move(wiring)});
  return {};
}

Expected<Preset> find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  if (name == kCustomWiring) return Preset{kCustomWiring, "a wiring of its own", "", {}};
  return unknown_name("algorithm", name, names);
}

}  // namespace grapevine
