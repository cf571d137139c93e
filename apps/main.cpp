#include "apps/program.hpp"

int main(int argc, char** argv) { return grapevine::run_command_line(argc, argv); }
