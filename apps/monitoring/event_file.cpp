#include "apps/monitoring/event_file.hpp"

#include <isa-l/crc.h>
#include <tensorboard_event.pb.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

namespace grapevine {
namespace {

constexpr char kVersion[] = "brain.Event:2";
constexpr std::uint32_t kMaskDelta = 0xa282ead8U;

void append_little_endian(std::uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xffU));
}

// Rotated and offset, so that the CRC of a text that holds CRCs stays a good one.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return ((crc >> 15U) | (crc << 17U)) + kMaskDelta;
}

void append_record(const tensorboard::Event& event, std::string& out) {
  const std::string payload = event.SerializeAsString();
  std::string length;
  append_little_endian(payload.size(), 8, length);
  out += length;
  append_little_endian(masked_crc(length), 4, out);
  out += payload;
  append_little_endian(masked_crc(payload), 4, out);
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  // The library's pointer is not const, but it only reads.
  auto* data = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // NOLINT
  return ~crc32_iscsi(data, static_cast<int>(bytes.size()), ~0U);
}

EventFile::EventFile(std::filesystem::path path, double wall_time, std::int64_t first_step)
    : path_(std::move(path)) {
  tensorboard::Event version;
  version.set_wall_time(wall_time);
  version.set_file_version(kVersion);
  append_record(version, pending_);
  tensorboard::Event start;
  start.set_wall_time(wall_time);
  start.set_step(first_step);
  start.mutable_session_log()->set_status(tensorboard::SessionLog::START);
  append_record(start, pending_);
}

void EventFile::add(double wall_time, std::int64_t step, const Scalars& scalars) {
  if (failed_ && pending_.size() >= kMostKept) return;
  tensorboard::Event event;
  event.set_wall_time(wall_time);
  event.set_step(step);
  for (const auto& [tag, value] : scalars) {
    if (std::isnan(value)) continue;
    tensorboard::Scalar* scalar = event.mutable_summary()->add_value();
    scalar->set_tag(tag);
    scalar->set_simple_value(static_cast<float>(value));
  }
  if (event.has_summary()) append_record(event, pending_);
}

// Removes the remains of a failed write, so that readers do not see them.
bool EventFile::cut_back() const {
  std::error_code failure;
  if (!std::filesystem::exists(path_, failure)) return true;
  std::filesystem::resize_file(path_, *whole_, failure);
  return !failure;
}

Expected<void> EventFile::flush() {
  if (pending_.empty()) return {};
  std::error_code ignored;
  std::filesystem::create_directories(path_.parent_path(), ignored);
  if (!whole_) {
    const std::uintmax_t size = std::filesystem::file_size(path_, ignored);
    whole_ = ignored ? 0 : size;
  }
  if (!failed_ || cut_back()) {
    std::ofstream file(path_, std::ios::binary | std::ios::app);
    file.write(pending_.data(), static_cast<std::streamsize>(pending_.size()));
    file.close();
    failed_ = !file;
  }
  if (!failed_) {
    *whole_ += pending_.size();
    pending_.clear();
    return {};
  }
  const int number = errno;
  cut_back();
  return Error{Errc::io, path_.string() + ": cannot be written: " + std::strerror(number)};
}

}  // namespace grapevine
