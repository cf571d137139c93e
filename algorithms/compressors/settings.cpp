#include "algorithms/compressors/settings.hpp"

#include "algorithms/compressors/compressor_type.hpp"

namespace grapevine {
namespace {

// Those that send a list of entries; the others send something for each entry.
std::vector<std::string> sparse_names() {
  std::vector<std::string> names;
  for (const CompressorType* type : compressor_types())
    if (type->sparse) names.push_back(type->name);
  return names;
}

void read_sparse(KeyReader& keys, const CompressionUse& use, CompressionSettings& c) {
  const std::string density = keys.text("density", "0.001", "a number in (0, 1]",
                                        "the share of entries that are sent"),
                    warmup =
                        keys.text("density_warmup", "none", "none | dgc | D1,D2,…[@EPOCHS]",
                                  "higher densities for the first epochs, one after the other");
  if (auto schedule = DensitySchedule::parse(density, warmup))
    c.density = std::move(*schedule);
  else
    keys.fail(schedule.error());
  c.per_layer = keys.flag("per_layer", false,
                          "keep that share of each layer's entries, at least one, not of all");
  c.value_type = keys.choice<ValueType>("value_type", "f32",
                                        {{"f32", ValueType::f32}, {"f16", ValueType::f16}},
                                        "the type of the values that are sent");
  if (use.sums)
    c.reduce =
        keys.choice<SparseReduce>("sparse_reduce", "all-gather",
                                  {{"all-gather", SparseReduce::all_gather},
                                   {"all-gather-reselect", SparseReduce::all_gather_reselect},
                                   {"butterfly", SparseReduce::butterfly},
                                   {"tree", SparseReduce::tree}},
                                  "how sparse vectors are added up");
}

void read_momentum(KeyReader& keys, CompressionSettings& c) {
  c.momentum_correction =
      keys.flag("momentum_correction", false,
                "the optimizer's momentum works on each rank before the compression");
  keys.only_where("momentum_correction", c.error_feedback || !c.momentum_correction,
                  "error_feedback = false: corrected momentum is collected in the residual, choose "
                  "error_feedback = true");
  keys.where("momentum_correction", "true", [&] {
    keys.where_any("compress", sparse_names(), [&] {
      c.momentum_masking =
          keys.flag("momentum_masking", true, "entries that were sent lose that momentum");
    });
  });
}

}  // namespace

CompressionSettings read_compression(KeyReader& keys, const CompressionUse& use) {
  CompressionSettings c;
  const std::vector<std::string> names = compressor_names();
  c.name = keys.name("compress", "none", names, "how exchanged vectors are made smaller");
  if (!use.whole_models)
    keys.where_any("compress", sparse_names(), [&] { read_sparse(keys, use, c); });
  if (use.sums)
    keys.where("compress", "none", [&] {
      c.exact = keys.choice<ExactReduce>(
          "all_reduce", "auto",
          {{"ring", ExactReduce::ring},
           {"direct", ExactReduce::direct},
           {"doubling", ExactReduce::doubling},
           {"auto", ExactReduce::automatic}},
          "how whole vectors are added up: around a ring; in two rounds between all ranks; by "
          "pairs; auto: by pairs where they are short, else in two rounds among at most 4 ranks, "
          "else around a ring");
    });
  for (const CompressorType* type : compressor_types())
    if (type->read && !(type->sparse && use.whole_models))
      keys.where("compress", type->name, [&] { type->read(keys, c); });
  if (use.whole_models) {
    c.error_feedback = false;
    keys.only_where("compress", !is_sparse(c) && keeps_magnitudes(c),
                    "exchange = '" + keys.value_of("exchange") +
                        "': models are averaged in changing groups, so that no replica can stand "
                        "for what is not sent, choose fp16, bf16 or int8");
    return c;
  }
  keys.where_any("compress", {names.begin() + 1, names.end()}, [&] {
    c.error_feedback = keys.flag("error_feedback", true,
                                 "keep the values that were not sent, and send them later");
    if (!use.mixes)
      keys.where("error_feedback", "true", [&] {
        c.residual_decay = keys.number("residual_decay", 1, {0, 1, true},
                                       "the part of what was not sent that is kept");
      });
    if (use.momentum) keys.where("pack", "gradient", [&] { read_momentum(keys, c); });
    if (use.mixes)
      c.consensus_step = keys.number(
          "consensus_step", keys.lists() ? 0 : default_consensus_step(c), {0, 1, true},
          "gamma: how far compressed gossip moves towards its peers; by the compressor's loss");
  });
  return c;
}

}  // namespace grapevine
