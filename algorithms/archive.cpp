#include "algorithms/archive.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

Error damaged_entry(const std::string& name, const std::string& what) {
  return bad_input("entry '" + name + "' of the saved state " + what +
                   ": the checkpoint is damaged, resume from another one");
}

}  // namespace

void Archive::read_or_write(const std::string& name, std::int64_t& value, std::int64_t least,
                            std::int64_t most) {
  if (!loads()) return to_->put(name, value);
  if (!ok()) return;
  const auto read = from_->integer_in(name, least, most);
  if (!read) return fail(read.error());
  value = *read;
}

void Archive::read_or_write(const std::string& name, std::vector<std::int64_t>& values,
                            std::int64_t least, std::int64_t most) {
  if (!loads()) return to_->put_list(name, values);
  if (!ok()) return;
  auto read = from_->list(name);
  if (!read) return fail(read.error());
  for (const std::int64_t value : *read)
    if (value < least || value > most)
      return fail(damaged_entry(name, "has " + std::to_string(value) + ", outside " +
                                          std::to_string(least) + ".." + std::to_string(most)));
  values = std::move(*read);
}

void Archive::number(const std::string& name, double& value) {
  if (!loads()) return to_->put(name, value);
  if (!ok()) return;
  const auto read = from_->number(name);
  if (!read) return fail(read.error());
  if (!std::isfinite(*read)) return fail(damaged_entry(name, "is " + number_text(*read)));
  value = *read;
}

void Archive::text(const std::string& name, std::string& value) {
  if (!loads()) return to_->put(name, value);
  if (!ok()) return;
  auto read = from_->text(name);
  if (!read) return fail(read.error());
  value = std::move(*read);
}

at::Tensor Archive::read_tensor(const std::string& name, std::optional<std::int64_t> d) {
  if (!has(name)) return {};
  const auto read = d ? from_->flat_tensor(name, *d) : from_->tensor(name);
  if (read) return *read;
  fail(read.error());
  return {};
}

void Archive::read_or_write(const std::string& name, at::Tensor& value,
                            std::optional<std::int64_t> d) {
  if (!ok()) return;
  if (loads()) {
    const at::Tensor read = read_tensor(name, d);
    if (ok()) value = read.defined() ? read.clone() : read;
    if (ok() && d) to_device(value);
  } else if (value.defined()) {
    to_->put(name, value.clone());
  }
}

void Archive::read_or_write(const std::string& name, FrozenTensor& value,
                            std::optional<std::int64_t> d) {
  if (!ok()) return;
  if (loads()) {
    const at::Tensor read = read_tensor(name, d);
    if (ok()) value = read.defined() ? FrozenTensor::copy_of(read) : FrozenTensor();
    if (ok() && d) to_device(value);
  } else if (value.defined()) {
    to_->put(name, value.read());
  }
}

void Archive::to_device(at::Tensor& value) const {
  if (value.defined() && value.is_cpu() && !host_only_ && at::isFloatingType(value.scalar_type()))
    value = value.to(from_->device());
}

void Archive::to_device(FrozenTensor& value) const {
  if (value.defined() && value.device().is_cpu() && !host_only_ &&
      at::isFloatingType(value.dtype()))
    value = value.on(from_->device());
}

bool Archive::has(const std::string& name, bool saved) const {
  if (!loads()) return saved;
  const auto& entries = from_->entries();
  if (entries.count(name) > 0) return true;
  const std::string start = name + ".";
  const auto part = entries.lower_bound(start);
  return part != entries.end() && part->first.compare(0, start.size(), start) == 0;
}

void Archive::require(bool holds, const std::string& name, const std::string& what) {
  if (!holds) fail(damaged_entry(name, what));
}

}  // namespace grapevine
