// A program whose role has the name of one of the engine's.
#include "algorithms/wiring/role_type.hpp"
#include "apps/program.hpp"

int main(int argc, char** argv) {
  static grapevine::RoleType type = *grapevine::role_types().front();
  return grapevine::run_command_line(argc, argv, {grapevine::register_role(type)});
}
