#include "apps/control/control_command.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "apps/console/json_text.hpp"
#include "apps/console/verb_options.hpp"
#include "apps/control/control_client.hpp"
#include "apps/control/status_view.hpp"
#include "messages/text/names.hpp"

namespace grapevine {
namespace {

using nlohmann::ordered_json;

class ControlCommand : public Command {
 public:
  void declare(CLI::App& app) override {
    app.add_option(
           "run", target_,
           "the folder of a run, HOST:PORT of its --control, or HOST:PORT of the first of the "
           "nodes that run it")
        ->required();
    app.add_option("action", action_, "status | stop | checkpoint | set KEY=VALUE… | drain RANK")
        ->required();
    app.add_option("arguments", arguments_, "of the action");
    add_option(app, "tls", tls_,
               "folder with certificates, for HOST:PORT of a run with --tls [off]");
    add_option(app, "secret-file", secret_file_,
               "file with the secret of the nodes at HOST:PORT [GRAPEVINE_CLUSTER_SECRET]");
    add_switch(app, "json", json_, "print the status, or the answer, as one JSON object");
  }

  bool computes() const override { return false; }

  Expected<void> run(Console& console) override {
    auto arguments = read_arguments();
    if (!arguments) return arguments.error();
    auto client = ControlClient::find(
        target_, [](const char* name) { return const_cast<const char*>(std::getenv(name)); }, tls_,
        secret_file_);
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
    std::int32_t rank = -1;
    const std::string text = arguments_.size() == 1 ? arguments_.front() : "";
    const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (text.empty() || wrong != std::errc() || end != text.data() + text.size() || rank < 0)
      return bad_input("control drain: expected the number of one rank");
    return ordered_json{{"rank", rank}};
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

  std::string target_, action_;
  std::string tls_, secret_file_;
  std::vector<std::string> arguments_;
  bool json_ = false;
};

}  // namespace

Expected<void> print_status(ControlClient& client, bool json, Console& console) {
  const auto status = client.status();
  if (!status) return status.error();
  if (json) {
    console.out << json_text(*status) << "\n";
    return {};
  }
  const auto view = view_of(*status, nullptr);
  if (!view) return view.error();
  console.out << text_of(*view);
  return {};
}

std::unique_ptr<Command> make_control_command() { return std::make_unique<ControlCommand>(); }

}  // namespace grapevine
