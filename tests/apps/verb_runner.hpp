// Runs a verb that prints results alone, in this process.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <sstream>
#include <string>

#include <CLI/CLI.hpp>

#include "apps/console/command.hpp"

namespace grapevine::testing_apps {

class VerbRunner {
 public:
  explicit VerbRunner(std::function<std::unique_ptr<Command>()> make) : make_(std::move(make)) {}

  struct Outcome {
    Expected<void> result;
    std::string out;
    std::string err;
  };
  // `quiet`: it prints nothing to err.
  Outcome run(const std::string& arguments, bool quiet = true) const {
    CLI::App app;
    const auto command = make_();
    command->declare(app);
    app.parse(arguments);
    std::ostringstream out, err;
    Console console{out, err};
    Expected<void> result = command->run(console);
    EXPECT_TRUE(err.str().empty() || !quiet) << err.str();
    return {std::move(result), out.str(), err.str()};
  }

  // What it prints; an error fails the test.
  std::string output(const std::string& arguments) const {
    Outcome outcome = run(arguments);
    EXPECT_TRUE(outcome.result.ok()) << arguments << ": " << outcome.result.error().message;
    return outcome.out;
  }

  // The message of its error: bad input, before anything is printed.
  std::string error(const std::string& arguments) const {
    const Outcome outcome = run(arguments);
    EXPECT_FALSE(outcome.result.ok()) << arguments;
    EXPECT_EQ(outcome.out, "") << "nothing is printed before an error";
    if (outcome.result.ok()) return "";
    EXPECT_EQ(outcome.result.error().code, Errc::bad_input);
    return outcome.result.error().message;
  }

 private:
  const std::function<std::unique_ptr<Command>()> make_;
};

}  // namespace grapevine::testing_apps
