// Errors of a command line or its environment, in this program's words instead of the
// parser's.
#pragma once
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "messages/expected.hpp"

namespace grapevine {

// The arguments of a verb, parsed against `app` or about to be.
struct VerbUsage {
  const CLI::App& app;
  const std::string& verb;
  const std::vector<std::string>& arguments;
};

// For an error that CLI::App::parse() threw: it names the option, or the environment variable where
// the value came from there, and the expected form.
std::string usage_message(const VerbUsage& usage, const CLI::ParseError& error);

// `error` behind "GRAPEVINE_<OPTION>: " where it begins with an option that only the environment
// has set: it is not to be found on the command line.
Error with_variable(const VerbUsage& usage, Error error);

// Warnings, each a line, about variables GRAPEVINE_… of `environment` ("NAME=VALUE" each, as in
// environ) that are not in `known`.
std::vector<std::string> unknown_variables(const std::vector<std::string>& environment,
                                           const std::vector<std::string>& known);

}  // namespace grapevine
