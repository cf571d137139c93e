#include "apps/control/control_command.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/console/json_text.hpp"
#include "apps/console/text/terminal.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/control/control_target.hpp"
#include "apps/control/status_view.hpp"
#include "messages/text/names.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

class ControlCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    target_.declare(app);
    app.add_option("action", action_, "status | stop | checkpoint | set KEY=VALUE… | drain RANK")
        ->required();
    app.add_option("arguments", arguments_, "of the action");
    add_switch(app, "json", json_, "print the status, or the answer, as one JSON object");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    auto arguments = read_arguments();
    if (!arguments) return arguments.error();
    auto client = target_.find();
    if (!client) return client.error();
    if (action_ == "status") return print_status(*client, json_, console);
    const auto text = client->ask(action_, *arguments);
    if (!text) return text.error();
    console.out << (json_ ? json_text({{"text", *text}}) : *text) << "\n";
    return {};
  }

 private:
  // Of the request that the action is.
  Expected<ordered_json> read_arguments() const {
    const std::vector<std::string> actions = {"status", "stop", "checkpoint", "set", "drain"};
    if (std::find(actions.begin(), actions.end(), action_) == actions.end())
      return unknown_name("action", action_, actions);
    if (action_ == "drain") return read_rank();
    if (action_ == "set") return read_settings();
    if (!arguments_.empty())
      return bad_input("control " + action_ + " takes no argument, but '" + arguments_.front() +
                       "' is there");
    return ordered_json::object();
  }

  Expected<ordered_json> read_rank() const {
    const auto rank =
        arguments_.size() == 1 ? number_in<std::int32_t>(arguments_.front()) : std::nullopt;
    if (!rank || *rank < 0) return bad_input("control drain: expected the number of one rank");
    return ordered_json{{"rank", *rank}};
  }

  Expected<ordered_json> read_settings() const {
    ordered_json settings = ordered_json::object();
    for (const std::string& argument : arguments_) {
      const std::size_t equals = argument.find('=');
      if (equals == 0 || equals == std::string::npos || equals + 1 == argument.size())
        return bad_input("control set '" + argument + "': expected KEY=VALUE");
      settings[argument.substr(0, equals)] = argument.substr(equals + 1);
    }
    if (settings.empty()) return bad_input("control set: expected KEY=VALUE");
    return ordered_json{{"settings", settings}};
  }

  ControlTarget target_;
  std::string action_;
  std::vector<std::string> arguments_;
  bool json_ = false;
};

}  // namespace

int status_width() {
  return ::isatty(STDOUT_FILENO) == 1 ? detect_terminal(STDOUT_FILENO).columns() : kAnyWidth;
}

Expected<void> print_status(ControlClient& client, bool json, Console& console) {
  const auto status = client.status();
  if (!status) return status.error();
  if (json) {
    console.out << json_text(*status) << "\n";
    return {};
  }
  const auto view = view_of(*status, nullptr);
  if (!view) return view.error();
  console.out << text_of(*view, status_width());
  return {};
}

std::unique_ptr<Command> make_control_command() { return std::make_unique<ControlCommand>(); }

}  // namespace grapevine
