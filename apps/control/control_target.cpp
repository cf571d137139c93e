#include "apps/control/control_target.hpp"

#include <cstdlib>

#include "apps/console/verb_options.hpp"

namespace grapevine {

void ControlTarget::declare(CLI::App& app) {
  app.add_option("run", run_,
                 "the folder of a run, HOST:PORT of its --control, or HOST:PORT of the first of "
                 "the nodes that run it")
      ->required();
  add_option(app, "tls", tls_, "folder with certificates, for HOST:PORT of a run with --tls [off]");
  secret_option_ =
      add_option(app, "secret-file", secret_file_,
                 "file with the secret of the nodes at HOST:PORT [GRAPEVINE_CLUSTER_SECRET]");
}

Expected<ControlClient> ControlTarget::find() const {
  return ControlClient::find(
      run_, [](const char* name) { return const_cast<const char*>(std::getenv(name)); }, tls_,
      from_environment(*secret_option_) ? "" : secret_file_);
}

}  // namespace grapevine
