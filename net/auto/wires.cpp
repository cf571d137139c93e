#include "net/auto/wires.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "net/little_endian.hpp"
#include "net/shm/shm.hpp"

namespace grapevine::wires {
namespace {

constexpr char kMagic[] = "GVAU1";
constexpr std::size_t kMagicBytes = sizeof kMagic - 1;

std::string joined(const std::vector<std::int32_t>& processes) {
  std::string text;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (i > 0) text += i + 1 == processes.size() ? " and " : ", ";
    text += std::to_string(processes[i]);
  }
  return text;
}

}  // namespace

const char* name_of(Wire wire) {
  switch (wire) {
    case Wire::shm:
      return "shm";
    case Wire::ucx:
      return "ucx";
    case Wire::tcp:
      return "tcp";
  }
  return "";
}

// The magic, then for each wire: its number in a byte, the length in four, the address.
std::string pack_addresses(const WireAddresses& addresses) {
  std::vector<std::byte> bytes;
  for (const char c : std::string(kMagic)) bytes.push_back(static_cast<std::byte>(c));
  for (const auto& [wire, address] : addresses) {
    little_endian::put(bytes, static_cast<std::uint8_t>(wire));
    little_endian::put(bytes, static_cast<std::uint32_t>(address.size()));
    for (const char c : address) bytes.push_back(static_cast<std::byte>(c));
  }
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Expected<WireAddresses> unpack_addresses(const std::string& bytes) {
  const Error damaged = bad_input(
      "it has no address of --transport auto: give all processes the "
      "same --transport");
  constexpr std::size_t kHead = 5;
  if (bytes.compare(0, kMagicBytes, kMagic) != 0) return damaged;
  WireAddresses addresses;
  const auto* const data = reinterpret_cast<const std::byte*>(bytes.data());
  for (std::size_t at = kMagicBytes; at < bytes.size();) {
    if (bytes.size() - at < kHead) return damaged;
    const auto wire = little_endian::get<std::uint8_t>(data + at);
    const auto size = little_endian::get<std::uint32_t>(data + at + 1);
    at += kHead;
    if (wire >= kWires || size > bytes.size() - at) return damaged;
    if (!addresses.emplace(static_cast<Wire>(wire), bytes.substr(at, size)).second) return damaged;
    at += size;
  }
  return addresses;
}

Expected<Wire> choose_wire(const WireAddresses& own, const WireAddresses& other) {
  const auto both = [&](Wire wire) { return own.count(wire) > 0 && other.count(wire) > 0; };
  if (both(Wire::shm)) {
    const Expected<bool> reached = reaches_by_shm(other.at(Wire::shm));
    if (!reached) return reached.error();
    if (*reached) return Wire::shm;
  }
  if (both(Wire::ucx)) return Wire::ucx;
  if (both(Wire::tcp)) return Wire::tcp;
  return bad_input("it has no transport in common with this process");
}

std::string describe(std::int32_t own_process, const std::map<std::int32_t, Wire>& wires) {
  std::map<Wire, std::vector<std::int32_t>> by_wire;
  for (const auto& [process, wire] : wires) by_wire[wire].push_back(process);
  std::string text = fmt::format("process {} reaches ", own_process);
  bool first = true;
  for (const auto& [wire, processes] : by_wire) {
    text += fmt::format("{}{} over {}", first ? "" : ", ", joined(processes), name_of(wire));
    first = false;
  }
  return text;
}

bool has_fast_device(const std::string& folder) {
  std::error_code error;
  for (const auto& device : std::filesystem::directory_iterator(folder, error)) {
    std::error_code ignored;
    for (const auto& port : std::filesystem::directory_iterator(device.path() / "ports", ignored)) {
      std::ifstream file(port.path() / "state");
      std::string state;
      if (std::getline(file, state) && state.find("ACTIVE") != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace grapevine::wires
