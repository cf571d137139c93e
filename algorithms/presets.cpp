// The presets: nothing but wirings. No role knows these names.
#include "algorithms/wiring.hpp"
#include "messages/names.hpp"

namespace grapevine {
namespace {

Preset make_preset(std::string name, std::string title, std::string paper,
                   const std::vector<std::pair<std::string, std::string>>& keys) {
  Preset preset{std::move(name), std::move(title), std::move(paper), {}};
  for (const auto& [key, value] : keys) {
    const auto set = preset.wiring.set(key, value);
    GRAPEVINE_CHECK(set.ok(), preset.name, ": ", set.error().message);
  }
  return preset;
}

Preset sparse_preset(const std::string& name, const std::string& title, const std::string& paper,
                     const std::string& sparse_reduce) {
  return make_preset(name, title, paper,
                     {{"exchange", "aggregate"},
                      {"pack", "gradient"},
                      {"compress", "top-k"},
                      {"density", "0.001"},
                      {"sparse_reduce", sparse_reduce}});
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      make_preset("ar", "All-reduce SGD",
                  "Patarasuk & Yuan 2009 (ring all-reduce); synchronous data parallelism",
                  {{"exchange", "aggregate"}, {"pack", "gradient"}}),
      make_preset("sgp", "Stochastic Gradient Push", "Assran et al., ICML 2019, Algorithm 1",
                  {{"exchange", "gossip"},
                   {"pack", "model"},
                   {"averaging", "push-sum"},
                   {"topology", "exponential"},
                   {"peers", "1"}}),
      make_preset("osgp", "Overlap Stochastic Gradient Push",
                  "Assran et al., ICML 2019, Algorithm 2",
                  {{"exchange", "gossip"},
                   {"pack", "model"},
                   {"averaging", "push-sum"},
                   {"topology", "exponential"},
                   {"peers", "1"},
                   {"overlap", "true"},
                   {"staleness", "0"}}),
      make_preset("d-psgd", "Decentralized parallel SGD", "Lian et al., NeurIPS 2017, Algorithm 1",
                  {{"exchange", "gossip"},
                   {"pack", "model"},
                   {"averaging", "symmetric"},
                   {"topology", "exponential"},
                   {"peers", "1"},
                   {"update", "after"}}),
      make_preset("ad-psgd", "Asynchronous decentralized parallel SGD",
                  "Lian et al., ICML 2018, Algorithm 1",
                  {{"exchange", "bilateral"},
                   {"pack", "model"},
                   {"topology", "bipartite-exponential"},
                   {"peers", "1"}}),
      make_preset("eager-solo", "Eager-SGD with solo all-reduce",
                  "Li et al., PPoPP 2020, Algorithm 2",
                  {{"exchange", "partial"},
                   {"pack", "gradient"},
                   {"activation", "solo"},
                   {"staleness", "10"}}),
      make_preset("eager-majority", "Eager-SGD with majority all-reduce",
                  "Li et al., PPoPP 2020, Algorithm 2",
                  {{"exchange", "partial"},
                   {"pack", "gradient"},
                   {"activation", "majority"},
                   {"staleness", "10"}}),
      make_preset("eager-quorum", "Eager-SGD that waits for a number of ranks",
                  "after Li et al., PPoPP 2020, section 4",
                  {{"exchange", "partial"},
                   {"pack", "gradient"},
                   {"activation", "quorum"},
                   {"staleness", "10"}}),
      make_preset("wagma", "Wait-avoiding group model averaging SGD",
                  "Li et al., TPDS 2021, Algorithm 2",
                  {{"exchange", "group"}, {"pack", "model"}, {"staleness", "10"}}),
      sparse_preset("topk", "Top-k sparsified SGD with error feedback",
                    "Shi et al., IJCAI 2019; Lin et al., ICLR 2018", "all-gather"),
      sparse_preset("topk2", "Top-k, selected again from the sum", "Shi et al., ICDCS 2019",
                    "all-gather-reselect"),
      sparse_preset("gtopk", "Global top-k", "Shi et al., ICDCS 2019, Algorithm 4", "butterfly"),
      make_preset("choco-sgd", "Gossip with compressed differences",
                  "Koloskova, Stich, Jaggi, ICML 2019, Algorithm 2",
                  {{"exchange", "gossip"},
                   {"pack", "model"},
                   {"averaging", "symmetric"},
                   {"topology", "ring"},
                   {"peers", "1"},
                   {"compress", "top-k"},
                   {"density", "0.1"}}),
      make_preset("gem", "Gradient energy matching", "Hermans & Louppe 2018",
                  {{"exchange", "server"}, {"rule", "gem"}, {"servers", "1"}, {"kappa", "1"}}),
      make_preset(
          "downpour", "DOWNPOUR", "Dean et al., NeurIPS 2012, section 4.1",
          {{"exchange", "server"}, {"rule", "downpour"}, {"servers", "1"}, {"window", "1"}}),
      make_preset(
          "adaptive", "Staleness-aware asynchronous SGD",
          "Zhang et al., IJCAI 2016; DynSGD: Jiang et al., SIGMOD 2017",
          {{"exchange", "server"}, {"rule", "adaptive"}, {"servers", "1"}, {"window", "1"}}),
      make_preset("easgd", "Asynchronous elastic averaging SGD",
                  "Zhang, Choromanska & LeCun, NeurIPS 2015, Algorithm 1",
                  {{"exchange", "server"},
                   {"rule", "easgd"},
                   {"servers", "1"},
                   {"window", "4"},
                   {"elasticity", "0.9"}}),
      make_preset("local-sgd", "Local SGD", "Stich, ICLR 2019; Lin et al., ICLR 2020",
                  {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "8"}}),
      make_preset("diloco", "DiLoCo", "Douillard et al. 2023, Algorithm 1",
                  {{"exchange", "aggregate"},
                   {"pack", "difference"},
                   {"local_steps", "50"},
                   {"outer", "nesterov"}}),
  };
  return all;
}

Expected<Preset> find_preset(const std::string& name) {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    names.push_back(preset.name);
  }
  return unknown_name("algorithm", name, names);
}

}  // namespace grapevine
