// Mutations that keep the form of an input, so that most mutants pass the parser and reach what is
// behind it. Each returns another input, which differs from the given one by a few changes of this
// kind; equal states of `rng` give equal mutants.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace grapevine::fuzzing {

using Rng = std::mt19937_64;

// TOML, line by line: inserts, removes, repeats and exchanges lines, gives a key another value or a
// value another key. `lines`: tables and "key = value" lines that the format knows; not empty.
std::string mutate_toml(std::string_view text, const std::vector<std::string>& lines, Rng& rng);

// JSON: replaces, removes, repeats and copies values anywhere in the document. `members`: an object
// of members that the format knows, at any depth; not empty. A text that is no JSON gives `members`
// itself, mutated.
std::string mutate_json(std::string_view text, const nlohmann::json& members, Rng& rng);

// Inputs of the targets. Wirings: TOML with all keys and their values.
std::string mutate_wiring(std::string_view text, Rng& rng);
// The same, with the options of `train`.
std::string mutate_job_file(std::string_view text, Rng& rng);
// JSON, see fuzz_one_checkpoint().
std::string mutate_checkpoint(std::string_view text, Rng& rng);
// Frames of trace files (trace_input.hpp): inserts new ones of every type, removes, repeats and
// exchanges them, begins another file, changes a byte. Files with a magic number are left out.
std::string mutate_trace_file(std::string_view input, Rng& rng);

// REQUIRES: `values` is not empty.
template <class Values>
auto& any_of(Values& values, Rng& rng) {
  return values[rng() % values.size()];
}

// Lines of a text, or frames of a file: inserts one of make(), removes, repeats or exchanges some.
// False: it has done nothing, as `kind` is above 4. REQUIRES: entries, or a kind of 0 or 1.
template <class Make>
bool change_entries(std::vector<std::string>& entries, std::uint64_t kind, const Make& make,
                    Rng& rng) {
  const auto place = [&entries, &rng] {
    return entries.begin() + static_cast<std::ptrdiff_t>(rng() % (entries.size() + 1));
  };
  if (kind <= 1) {
    entries.insert(place(), make());
  } else if (kind == 2) {
    entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(rng() % entries.size()));
  } else if (kind == 3) {
    const std::string again = any_of(entries, rng);
    entries.insert(place(), again);
  } else if (kind == 4) {
    std::swap(any_of(entries, rng), any_of(entries, rng));
  }
  return kind <= 4;
}

}  // namespace grapevine::fuzzing
