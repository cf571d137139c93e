// The command line of the grapevine program, for programs that add roles, compressors, topologies,
// models or data sets to it.
//
//   int main(int argc, char** argv) {
//     return grapevine::run_command_line(argc, argv, {grapevine::register_role(my_role())});
//   }
#pragma once
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// All verbs of the program. `argc`, `argv`: main()'s. `registered`: what register_role(),
// register_compressor(), register_topology(), register_preset(), register_model() and
// register_data_set() returned; the first error ends the program. Sets up the process: signals,
// standard streams, logging; call it once, from main(), before other threads are started. Returns
// the exit code (messages/exit_code.hpp); ends the process itself where a thread is left behind
// that destructors would disturb.
int run_command_line(int argc, char** argv, const std::vector<Expected<void>>& registered = {});

}  // namespace grapevine
