// The vectors in a message that belong where its receiver keeps its model.
#pragma once
#include <type_traits>
#include <utility>
#include <variant>

#include "messages/protocol.hpp"

namespace grapevine {

// Calls change(FrozenTensor&) for each tensor of real numbers that is a model, a gradient, or a
// part of one. Counts and packed vectors are no such tensors: counts are in host memory wherever
// the model is, packed vectors where their compressor works.
template <class F>
void each_model_vector(Payload& payload, F&& change) {
  const auto visit = [&change](FrozenTensor& t) {
    if (t.defined() && c10::isFloatingType(t.dtype())) change(t);
  };
  std::visit(
      [&visit](auto& message) {
        using Message = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<Message, Share> || std::is_same_v<Message, Swap> ||
                      std::is_same_v<Message, Parameters>)
          visit(message.x);
        else if constexpr (std::is_same_v<Message, Chunk>)
          visit(message.data);
        else if constexpr (std::is_same_v<Message, Grant>)
          visit(message.theta);
        else if constexpr (std::is_same_v<Message, Commit>)
          visit(message.update);
        else if constexpr (std::is_same_v<Message, Receipt>)
          visit(message.value);
        else if constexpr (std::is_same_v<Message, Extension>)
          for (FrozenTensor& t : message.tensors) visit(t);
      },
      payload);
}

// Whether such tensors may be in a payload of this kind.
inline bool has_model_vectors(const Payload& payload) {
  return !std::holds_alternative<PackedChunk>(payload) &&
         !std::holds_alternative<StateChunk>(payload);
}

// Calls change(FrozenTensor&) for each tensor of a packed vector that is on a device.
template <class F>
void each_packed_on_device(Payload& payload, F&& change) {
  auto* const chunk = std::get_if<PackedChunk>(&payload);
  if (chunk == nullptr) return;
  for (FrozenTensor* t : {&chunk->data.indices, &chunk->data.values, &chunk->data.scales})
    if (t->defined() && !t->device().is_cpu()) change(*t);
}

}  // namespace grapevine
