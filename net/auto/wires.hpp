// The wire of each pair of processes, as the automatic transport chooses it.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine::wires {

enum class Wire { shm, ucx, tcp };  // in order of preference
inline constexpr std::size_t kWires = 3;

const char* name_of(Wire wire);

// The addresses of one process; a wire without one is not there.
using WireAddresses = std::map<Wire, std::string>;

// Opaque bytes.
std::string pack_addresses(const WireAddresses& addresses);
// Errors (bad_input): not made by pack_addresses() of this version, or damaged.
Expected<WireAddresses> unpack_addresses(const std::string& bytes);

// Both processes of a pair choose the same: shm where each reaches the other's socket, ucx where
// both have a fast device, else tcp. Errors: bad_input: they have no wire in common; others:
// reaches_by_shm()'s.
Expected<Wire> choose_wire(const WireAddresses& own, const WireAddresses& other);

// "process 0 reaches 1, 2 and 3 over shm, 4 over tcp".
std::string describe(std::int32_t own_process, const std::map<std::int32_t, Wire>& wires);

// Whether this machine has a port of InfiniBand or RoCE in use, which UCX would take.
bool has_fast_device(const std::string& folder = "/sys/class/infiniband");

}  // namespace grapevine::wires
