// CompressorType: a compressor describes itself. One constant in each compressor's file and one
// list; nothing else in the engine knows which compressors there are.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/compressors/settings.hpp"
#include "algorithms/keys.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct CompressorType {
  std::string name;  // the value of wiring.compress
  // Compressor::sparse() of all that it makes; its wirings have the keys of density, layers, value
  // type and sparse sums. Its vectors are those of SparseCompressor.
  bool sparse = false;
  // Declares keys that only this compressor has, and reads them: into `own`, where the compressor
  // is from outside. May be empty.
  std::function<void(KeyReader& keys, CompressionSettings& settings)> read = nullptr;
  std::function<std::unique_ptr<const Compressor>(const CompressionSettings& settings)> make;
  // The consensus step of compressed gossip where the wiring sets none, in (0, 1]: 1 for a
  // compressor that keeps nearly all.
  std::function<double(const CompressionSettings& settings)> consensus_step =
      [](const CompressionSettings&) { return 1.0; };
};

// All compressors: `none`, then the shipped ones, then those from outside.
const std::vector<const CompressorType*>& compressor_types();

// Adds a compressor from outside, before the first wiring is read; `type` outlives the program. Not
// thread-safe. Errors (bad_input): a name that is taken.
Expected<void> register_compressor(const CompressorType& type);

// The shipped compressors, each in a file of its own, which gives its source.
const CompressorType& top_k_compressor();
const CompressorType& random_k_compressor();
const CompressorType& fp16_compressor();
const CompressorType& bf16_compressor();
const CompressorType& int8_compressor();
const CompressorType& sign_compressor();

}  // namespace grapevine
