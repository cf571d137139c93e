#include "actors/run/state_bytes.hpp"

#include <torch/serialize.h>

#include <algorithm>
#include <string>

#include "actors/record/pickle_dict.hpp"

namespace grapevine {

namespace {

// REQUIRES: on the host.
c10::impl::GenericDict dict_of(const StateDict& host) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (const auto& [name, value] : host.entries()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      dict.insert(name, *tensor);
    } else if (const auto* number = std::get_if<double>(&value)) {
      dict.insert(name, *number);
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      dict.insert(name, *integer);
    } else {
      const auto& text = std::get<std::string>(value);
      at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
      std::copy(text.begin(), text.end(), bytes.data_ptr<std::uint8_t>());
      dict.insert("text:" + name, bytes);
    }
  }
  return dict;
}

}  // namespace

std::vector<char> to_bytes(const StateDict& state) { return pickle_dict(dict_of(state.on_host())); }

std::vector<FrozenTensor> to_chunks(const StateDict& state, std::int64_t chunk_bytes) {
  return pickle_dict_in_chunks(dict_of(state.on_host()), chunk_bytes);
}

StateDict state_in(const c10::IValue& dict) {
  StateDict state;
  for (const auto& entry : dict.toGenericDict()) {
    const std::string name = entry.key().toStringRef();
    const at::IValue& value = entry.value();
    if (value.isDouble()) {
      state.put(name, value.toDouble());
    } else if (value.isInt()) {
      state.put(name, value.toInt());
    } else if (name.rfind("text:", 0) == 0) {
      // A tensor of a file may have been expanded: more elements than bytes of memory.
      const at::Tensor text = value.toTensor().contiguous();
      const auto* data = reinterpret_cast<const char*>(text.data_ptr<std::uint8_t>());
      state.put(name.substr(5), std::string(data, static_cast<std::size_t>(text.numel())));
    } else {
      state.put(name, value.toTensor());
    }
  }
  return state;
}

Expected<StateDict> from_bytes(const std::vector<char>& bytes) {
  try {
    return state_in(torch::pickle_load(bytes));
  } catch (const std::exception&) {
    return bad_input("damaged: " + std::to_string(bytes.size()) + " bytes that are no state");
  }
}

}  // namespace grapevine
