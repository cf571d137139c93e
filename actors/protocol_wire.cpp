#include "actors/protocol_wire.hpp"

#include <caf/actor_clock.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/execution_unit.hpp>
#include <caf/sec.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "actors/double_bits.hpp"
#include "actors/protocol.hpp"
#include "messages/check.hpp"
#include "messages/codec.hpp"
#include "messages/text/control_characters.hpp"
#include "messages/text/cut_to.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/log_limit.hpp"

namespace grapevine {
namespace {

template <class Archive>
caf::error bytes_of(Archive& archive, void* data, std::uint64_t size) {
  return size == 0 ? caf::error{} : archive.apply_raw(static_cast<std::size_t>(size), data);
}

// Bytes of the message that have arrived and were not read yet: a field that claims more is refused
// before memory is allocated for it.
std::uint64_t remaining(caf::deserializer& source) {
  const auto* binary = dynamic_cast<caf::binary_deserializer*>(&source);
  return binary == nullptr ? CodecLimits{}.max_payload_bytes : binary->remaining();
}

// By the clock of the system that decodes; without a system no time passes.
LogLimit::Clock::time_point now_of(caf::deserializer& source) {
  caf::execution_unit* const unit = source.context();
  return unit == nullptr ? LogLimit::Clock::time_point() : unit->system().clock().now();
}

caf::error refuse(caf::deserializer& source, const std::string& why) {
  static LogLimit limit;
  if (const auto more = limit.admit(now_of(source)))
    spdlog::warn("a message of another process was ignored: {}{}", why, *more);
  return caf::sec::end_of_stream;
}

// An error here is one of the message or a lack of memory, and must not end the thread: CAF calls
// these functions without a try of its own.
template <class F>
caf::error reading(caf::deserializer& source, F f) {
  try {
    return f();
  } catch (...) {
    return refuse(source, exception_line(std::current_exception()));
  }
}

template <class F>
caf::error writing(F f) {
  try {
    return f();
  } catch (...) {
    spdlog::error("a message to another process could not be written: {}",
                  exception_line(std::current_exception()));
    return caf::sec::runtime_error;
  }
}

// As the payload of a message between ranks, whose codec checks every length.
caf::error write_tensor(caf::serializer& sink, const FrozenTensor& tensor) {
  GRAPEVINE_CHECK(tensor.nbytes() <= kMostControlBytes,
                  "a tensor in a message of the control plane");
  Envelope envelope;
  envelope.payload = Share{0, 0, tensor};
  EncodedHeader header = encode_header(envelope);
  std::uint32_t size = static_cast<std::uint32_t>(header.size());
  if (auto error = sink(size)) return error;
  if (auto error = bytes_of(sink, header.data(), size)) return error;
  return bytes_of(sink, const_cast<void*>(tensor.defined() ? tensor.raw() : nullptr),
                  tensor.nbytes());
}

caf::error read_tensor(caf::deserializer& source, FrozenTensor& tensor) {
  tensor = FrozenTensor();
  std::uint32_t size = 0;
  if (auto error = source(size)) return error;
  if (size > kMaxHeaderBytes || size > remaining(source))
    return refuse(source, "a tensor's header");
  std::vector<std::byte> header(size);
  if (auto error = bytes_of(source, header.data(), size)) return error;
  CodecLimits limits;
  limits.max_payload_bytes = std::min<std::uint64_t>(kMostControlBytes, remaining(source));
  auto decoded = decode_header(header.data(), header.size(), limits);
  if (!decoded) return refuse(source, decoded.error().message);
  const std::uint64_t bytes = decoded->payload_bytes();
  std::vector<at::Tensor> payload = allocate_payload(*decoded);
  if (payload.size() != 1) return refuse(source, "a tensor that is none");
  if (bytes > 0)
    if (auto error = bytes_of(source, payload.front().data_ptr(), bytes)) return error;
  auto envelope = assemble(*std::move(decoded), std::move(payload));
  if (!envelope) return refuse(source, envelope.error().message);
  auto* share = std::get_if<Share>(&envelope->payload);
  if (share == nullptr) return refuse(source, "a tensor that is none");
  tensor = std::move(share->x);
  return {};
}

// ---- the values of a state ----

enum class ValueKind : std::uint8_t { tensor, number, integer, text };

caf::error write_value(caf::serializer& sink, const StateValue& value) {
  auto kind = static_cast<std::uint8_t>(value.index());
  if (auto error = sink(kind)) return error;
  if (const auto* tensor = std::get_if<at::Tensor>(&value))
    return write_tensor(sink, tensor->defined() ? FrozenTensor::copy_of(*tensor) : FrozenTensor());
  if (const auto* number = std::get_if<double>(&value)) {
    DoubleBits bits(const_cast<double&>(*number));
    return sink(bits.bits);
  }
  if (const auto* integer = std::get_if<std::int64_t>(&value))
    return sink(const_cast<std::int64_t&>(*integer));
  return sink(const_cast<std::string&>(std::get<std::string>(value)));
}

caf::error read_value(caf::deserializer& source, StateValue& value) {
  std::uint8_t kind = 0;
  if (auto error = source(kind)) return error;
  switch (static_cast<ValueKind>(kind)) {
    case ValueKind::tensor: {
      FrozenTensor tensor;
      if (auto error = read_tensor(source, tensor)) return error;
      value = tensor.defined() ? std::move(tensor).thaw() : at::Tensor();
      return {};
    }
    case ValueKind::number: {
      DoubleBits bits(value.emplace<double>());
      if (auto error = source(bits.bits)) return error;
      return bits.restore();
    }
    case ValueKind::integer:
      return source(value.emplace<std::int64_t>());
    case ValueKind::text:
      return source(value.emplace<std::string>());
  }
  return refuse(source, "a value of the kind " + std::to_string(kind));
}

}  // namespace

void add_message_types(caf::actor_system_config& config) {
  config.add_message_type<StartTraining>("grapevine::StartTraining");
  config.add_message_type<PeerLost>("grapevine::PeerLost");
  config.add_message_type<LinkLost>("grapevine::LinkLost");
  config.add_message_type<ResumeFrom>("grapevine::ResumeFrom");
  config.add_message_type<ProcessLost>("grapevine::ProcessLost");
  config.add_message_type<ExpectProcess>("grapevine::ExpectProcess");
  config.add_message_type<Ping>("grapevine::Ping");
  config.add_message_type<Pong>("grapevine::Pong");
  config.add_message_type<AskClock>("grapevine::AskClock");
  config.add_message_type<ClockReading>("grapevine::ClockReading");
  config.add_message_type<TakeSnapshot>("grapevine::TakeSnapshot");
  config.add_message_type<Collect>("grapevine::Collect");
  config.add_message_type<QueryWaits>("grapevine::QueryWaits");
  config.add_message_type<WaitReport>("grapevine::WaitReport");
  config.add_message_type<HoldForView>("grapevine::HoldForView");
  config.add_message_type<AskTraffic>("grapevine::AskTraffic");
  config.add_message_type<Traffic>("grapevine::Traffic");
  config.add_message_type<CloseView>("grapevine::CloseView");
  config.add_message_type<ViewClosed>("grapevine::ViewClosed");
  config.add_message_type<ViewCounts>("grapevine::ViewCounts");
  config.add_message_type<InstallView>("grapevine::InstallView");
  config.add_message_type<CheckSettings>("grapevine::CheckSettings");
  config.add_message_type<SettingsChecked>("grapevine::SettingsChecked");
  config.add_message_type<ModelShared>("grapevine::ModelShared");
  config.add_message_type<StepReport>("grapevine::StepReport");
  config.add_message_type<RankFinished>("grapevine::RankFinished");
  config.add_message_type<StateStored>("grapevine::StateStored");
  config.add_message_type<PartStored>("grapevine::PartStored");
  config.add_message_type<SnapshotRefused>("grapevine::SnapshotRefused");
  config.add_message_type<RankReport>("grapevine::RankReport");
  config.add_message_type<RankFigures>("grapevine::RankFigures");
  config.add_message_type<RankFailed>("grapevine::RankFailed");
  config.add_message_type<ModelOffer>("grapevine::ModelOffer");
  config.add_message_type<SendModel>("grapevine::SendModel");
  config.add_message_type<ModelSent>("grapevine::ModelSent");
  config.add_message_type<ReleaseModel>("grapevine::ReleaseModel");
  config.add_message_type<StopRequested>("grapevine::StopRequested");
  config.add_message_type<CheckpointRequested>("grapevine::CheckpointRequested");
  config.add_message_type<ProcessClosed>("grapevine::Farewell");
  config.add_message_type<RunEnded>("grapevine::RunEnded");
  config.add_message_type<AskChallenge>("grapevine::AskChallenge");
  config.add_message_type<Challenge>("grapevine::Challenge");
  config.add_message_type<Join>("grapevine::Join");
  config.add_message_type<Admission>("grapevine::Welcome");
  config.add_message_type<AskAddresses>("grapevine::AskAddresses");
  config.add_message_type<Addresses>("grapevine::Addresses");
  config.add_message_type<Ready>("grapevine::Ready");
  config.add_message_type<AskJob>("grapevine::AskJob");
  config.add_message_type<JobOffer>("grapevine::JobOffer");
}

caf::error inspect(caf::serializer& sink, StateDict& state) {
  return writing([&]() -> caf::error {
    auto count = static_cast<std::uint32_t>(state.entries().size());
    if (auto error = sink(count)) return error;
    for (const auto& [name, value] : state.entries()) {
      if (auto error = sink(const_cast<std::string&>(name))) return error;
      if (auto error = write_value(sink, value)) return error;
    }
    return {};
  });
}

caf::error inspect(caf::deserializer& source, StateDict& state) {
  return reading(source, [&]() -> caf::error {
    state = StateDict();
    std::uint32_t count = 0;
    if (auto error = source(count)) return error;
    for (std::uint32_t i = 0; i < count; ++i) {
      std::string name;
      StateValue value;
      if (auto error = source(name)) return error;
      if (auto error = read_value(source, value)) return error;
      state.put(name, std::move(value));
    }
    return {};
  });
}

// As much of it as is read.
caf::error inspect(caf::serializer& sink, Error& error) {
  return writing([&]() -> caf::error {
    auto code = static_cast<std::int32_t>(error.code);
    std::string text = cut_to(error.message, kLongestForeignText);
    return sink(code, text);
  });
}

// One line, from any process.
caf::error inspect(caf::deserializer& source, Error& error) {
  return reading(source, [&]() -> caf::error {
    std::int32_t code = 0;
    if (auto failed = source(code, error.message)) return failed;
    const bool known = code >= 0 && code <= static_cast<std::int32_t>(Errc::stopped);
    error.code = known ? static_cast<Errc>(code) : Errc::failed;
    error.message = one_line(std::move(error.message));
    return {};
  });
}

}  // namespace grapevine
