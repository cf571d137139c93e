// The options by which `control` and `top` find a running job.
#pragma once
#include <string>

#include <CLI/CLI.hpp>

#include "apps/control/control_client.hpp"

namespace grapevine {

class ControlTarget {
 public:
  // REQUIRES: `app` lives as long as this object.
  void declare(CLI::App& app);
  // Errors: those of ControlClient::find().
  Expected<ControlClient> find() const;

 private:
  std::string run_;
  std::string tls_, secret_file_;
  const CLI::Option* secret_option_ = nullptr;
};

}  // namespace grapevine
