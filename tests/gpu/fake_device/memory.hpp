// Memory of the fake device, and pinned memory of the host.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/gpu/fake_device/order.hpp"

namespace grapevine::fake {

// Every page is mapped twice: `shown` is what tensors point to, and the host may not touch it;
// `alias` is what the device itself works through.
struct Block {
  int device = 0;
  std::size_t bytes = 0;
  char* shown = nullptr;
  History history;
};

// Uninitialised, which is NaN as floats. `stream`: see Order::allocated. A host that touches it
// ends the process by a signal, after a line that says so.
Block* allocate(std::size_t bytes, int device, std::optional<std::size_t> stream);
void release(Block* block);
// The device's own pointer to what a tensor shows, in any block.
char* alias_of(const void* shown);

// Pinned memory. Until the host has waited for the work that uses it, touching it is a violation
// (it stays readable for what only reads it); the data are right all the same.
std::shared_ptr<void> pinned(std::size_t bytes);
bool is_pinned(const void* memory);
// The device's own pointer to pinned memory.
char* pinned_alias(const void* memory);
// `work` in a stream, at its `time`, reads or writes pinned memory.
void use_pinned(const void* memory, const std::string& work, bool writes, std::size_t stream,
                std::uint64_t time);
// After the host has waited: what it may touch again becomes accessible.
void open_pinned();

}  // namespace grapevine::fake
