// fuzz_seeds FOLDER: writes the seeds of the binary formats into FOLDER/<target>/. Those of text
// formats are written by hand.
#include <ATen/ATen.h>
#include <caf/binary_serializer.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "messages/codec.hpp"
#include "messages/trace/trace_format.hpp"
#include "tests/fuzz/control_messages.hpp"
#include "tests/fuzz/trace_input.hpp"
#include "tests/messages/trace/random_records.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

class SeedFolder {
 public:
  SeedFolder(const fs::path& folder, const std::string& target) : path_(folder / target) {
    fs::create_directories(path_);
  }
  void add(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  fs::path path_;
};

// ---- messages ----

FrozenTensor ramp(std::vector<std::int64_t> sizes, at::ScalarType dtype) {
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  return FrozenTensor::freeze(at::arange(elements).to(dtype).view(sizes).contiguous());
}

std::vector<Payload> one_of_each() {
  const FrozenTensor x = ramp({4}, at::kFloat), steps = ramp({2}, at::kLong);
  Extension extension{"sparta", {1, -2}, {0.5}, {ramp({2, 3}, at::kDouble), {}}};
  return {Share{3, 0.25, x},
          Leave{9},
          Chunk{1, 2, 3, ramp({2, 2}, at::kHalf)},
          Marker{7},
          Swap{5, true, x, steps},
          ProgressUpdate{steps},
          Activate{4, true},
          PackedChunk{1, 2, 3, {ramp({3}, at::kInt), ramp({3}, at::kByte), ramp({1}, at::kFloat)}},
          Ask{1},
          Grant{1, ramp({3}, at::kBFloat16)},
          Commit{1, 4, x},
          Receipt{1, true, {}},
          Parameters{2, false, 0.5, x},
          std::move(extension),
          StateChunk{1, 4, 12, ramp({8}, at::kByte)},
          StateReceived{1, 12}};
}

void write_codec(const SeedFolder& folder) {
  for (Payload& payload : one_of_each()) {
    Envelope envelope;
    envelope.from = 1;
    envelope.to = 2;
    envelope.stamp.origin = 1;
    envelope.stamp.step = 12;
    envelope.payload = std::move(payload);
    const std::vector<std::byte> bytes = encode(envelope);
    std::string name = payload_name(envelope.payload);
    std::replace(name.begin(), name.end(), ' ', '_');
    folder.add(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
}

// ---- messages between processes ----

template <class Message>
void add_control(const SeedFolder& folder, const std::string& name, Message message) {
  std::vector<char> bytes = {static_cast<char>(fuzzing::place_of<Message>())};
  caf::binary_serializer sink{fuzzing::actor_system(), bytes};
  GRAPEVINE_CHECK(!sink(message), name, " cannot be written");
  folder.add(name, {bytes.data(), bytes.size()});
}

StateDict some_state() {
  StateDict state;
  state.put("x", at::arange(3, at::kFloat));
  state.put("w", 0.75);
  state.put("step", std::int64_t{-9});
  state.put("rng", std::string("any\0bytes\xff", 10));
  return state;
}

void add_changes_of_members(const SeedFolder& folder) {
  add_control(folder, "part_stored", PartStored{3, 1, 4096});
  add_control(folder, "hold_for_view", HoldForView{2, {0, 1, 3}, {3}, true});
  add_control(folder, "traffic", Traffic{2, 1, 3, 17, 16});
  add_control(folder, "view_closed", ViewClosed{2, 3, ViewClosed::kJoins, 40, 1.5, 0.75, 9});
  InstallView install;
  install.view = 2;
  install.members = {0, 1, 3};
  install.donor = 0;
  install.joining = {3};
  install.heads = {0, 3};
  install.settings = {{"lr", "0.01"}};
  install.servers = 1;
  install.new_servers = {4};
  install.passes = true;
  install.counts = {{0, {7, 14, 3}}, {1, {7, 14, 0}}};
  add_control(folder, "install_view", install);
}

void add_offers(const SeedFolder& folder) {
  add_control(folder, "ask_job", AskJob{"0.1.0", "0123abcd", "proof", {{"lr", "0.1"}}});
  JobOffer offer;
  offer.process = 2;
  offer.processes = 3;
  offer.job = "77";
  offer.transport = "auto";
  offer.text = "algorithm = \"sgp\"\n";
  offer.proof = "proof";
  add_control(folder, "job_offer", offer);
  offer.refused = offer.later = true;
  offer.error = bad_input("no process of the job is lost");
  add_control(folder, "job_refused", offer);
}

void write_control(const SeedFolder& folder) {
  const Ledger ledger{4, 3, 1, 32, 5, 5, 0, 1 << 20, {{0, 2}, {1, 1}}, {{-1, 1}}};
  RankReport report;
  report.offer.parameters = 4;
  report.ledger = ledger;
  report.measures = some_state();
  add_control(folder, "rank_report", report);
  add_control(folder, "state_stored", StateStored{1, 2, 3, 400, 5});
  RankFigures figures;
  figures.ledger = ledger;
  figures.waited_ns = {{0, 5}};
  figures.sent_bytes = {{1, 6}};
  add_control(folder, "rank_figures", figures);
  WaitReport waits;
  waits.waits = {{2, PayloadKind::chunk, 812, 5, 6}, {-1, PayloadKind::activate, 5}};
  waits.queued_bytes = 4096;
  add_control(folder, "wait_report", waits);
  add_control(folder, "rank_failed", RankFailed{bad_input("rank 1: out of memory")});
  add_control(folder, "model_offer", ModelOffer{1, 2, 3, 0, {}});
  add_control(folder, "send_model", SendModel{1, 2, 0, 3, std::int64_t{1} << 48, 0});
  add_control(folder, "model_sent",
              ModelSent{"rank 1 keeps its 8 newest models, and not this one"});
  add_control(folder, "release_model", ReleaseModel{1, 2});
  StepReport step;
  step.loss = 0.5;
  add_control(folder, "step_report", step);
  add_control(folder, "challenge", Challenge{"1.ab.cd"});
  Join join;
  join.challenge = "1.ab.cd";
  join.version = "0.1.0";
  join.identity = {{"algorithm", "sgp"}};
  join.address = "127.0.0.1:80";
  add_control(folder, "join", join);
  Admission admission;
  admission.nonce = "nonce";
  add_control(folder, "admission", admission);
  Ready ready;
  ready.nonce = "nonce";
  ready.peers.resize(3);  // of no process: an actor would have to be there for every reader
  add_control(folder, "ready", ready);
  add_control(folder, "ask_addresses", AskAddresses{"nonce", 1});
  add_control(folder, "addresses", Addresses{1, {"a", "b"}, {"a:1", "b:2"}, "proof"});
  StartRanks start;
  start.arguments = {"--steps", "4"};
  add_control(folder, "start_ranks", start);
  add_changes_of_members(folder);
  add_offers(folder);
}

// ---- traces ----

TraceHeader header_of(std::int32_t process, std::int32_t part) {
  TraceHeader header;
  header.run = 77 + static_cast<std::uint64_t>(part);
  header.process = process;
  header.processes = 2;
  header.ranks = {process};
  header.workers = 2;
  header.host = header.boot = "m" + std::to_string(process);
  header.zero_monotonic_ns = 1000 * process;
  header.part = part;
  header.wiring = {{"exchange", "gossip"}};
  return header;
}

// Messages to and fro, a cut after them.
std::vector<TraceRecord> conversation(Rank rank) {
  std::vector<TraceRecord> records;
  for (std::uint64_t i = 1; i <= 3; ++i) {
    TraceRecord record;
    record.rank = record.origin = rank;
    record.peer = 1 - rank;
    record.sequence = i;
    record.time_ns = static_cast<std::int64_t>(100 * i);
    record.kind = EventKind::sent;
    records.push_back(record);
    record.time_ns += 50;
    record.kind = EventKind::received;
    records.push_back(record);
  }
  TraceRecord cut = records.back();
  cut.kind = EventKind::cut;
  cut.operation = 5;
  cut.sequence = 77;
  records.push_back(cut);
  return records;
}

// As trace_input.hpp has it.
class Frames {
 public:
  template <class Append, class... Args>
  Frames& add(Append append, const Args&... args) {
    std::string frame;
    append(frame, args...);
    text_ += frame.substr(kFrameHeadBytes - 1);
    text_ += fuzzing::kEndOfFrame;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Frames file_of(std::int32_t process, std::int32_t part) {
  Frames frames;
  frames.add(&append_header, header_of(process, part));
  if (process == 0 && part == 0)
    frames.add(&append_clock, ClockSample{1, 10, 5, 30})
        .add(&append_clock, ClockSample{1, 9'000'000'000, 8'999'999'000, 9'000'000'040, 1000});
  frames.add(&append_pulse, 100).add(&append_pulse, 900'000'000);
  return frames;
}

void write_trace_files(const SeedFolder& folder) {
  std::mt19937_64 rng(1);
  Frames first = file_of(0, 0), second = file_of(1, 0), later = file_of(0, 1);
  first.add(&append_records, conversation(0)).add(&append_records, conversation(0));
  first.add(&append_change, SettingsChange{40, {{"lr", "0.1"}}});
  second.add(&append_records, conversation(1)).add(&append_left_out, std::uint64_t{3});
  std::vector<TraceRecord> resumed = conversation(0);
  resumed[0].kind = EventKind::resumed;
  resumed[0].operation = 5;
  resumed[0].sequence = 77;
  later.add(&append_records, resumed).add(&append_end);
  const std::string end(fuzzing::kEndOfFile);
  folder.add("one_file", first.text());
  folder.add("two_processes", first.text() + end + second.text());
  folder.add("resumed", first.text() + end + second.text() + end + later.text());
  folder.add("as_it_is", fuzzing::trace_file_of(first.text()));
  Frames any = file_of(0, 0);
  any.add(&append_records, testing_trace::random_records(rng, 1, 6));
  folder.add("any_values", any.text());
}

void write_trace_frames(const SeedFolder& folder) {
  std::mt19937_64 rng(2);
  const auto add = [&folder](const std::string& name, char selector, const std::string& frame) {
    folder.add(name, selector + frame.substr(kFrameHeadBytes));
  };
  std::string frame;
  append_header(frame, header_of(1, 0));
  folder.add("head", std::string(1, '\0') + frame.substr(0, 64));
  add("header", 1, frame);
  append_clock(frame = "", {1, 10, -5, 30});
  add("clock", 2, frame);
  append_clock(frame = "", {1, 10, -5, 30, 77});
  add("clock_with_zero", 2, frame);
  append_pulse(frame = "", 123456789);
  add("pulse", 3, frame);
  append_change(frame = "", {123, {{"algorithm", "gtopk"}, {"lr", "0.1"}}});
  add("change", 7, frame);
  append_records(frame = "", conversation(1));
  add("conversation", 4, frame);
  append_records(frame = "", testing_trace::random_records(rng, 0, 5));
  add("records", 4, frame);
}

}  // namespace
}  // namespace grapevine

int main(int argc, char** argv) {
  using namespace grapevine;
  if (argc != 2) {
    std::cerr << "fuzz_seeds: give the folder for the seeds\n";
    return 2;
  }
  write_codec({argv[1], "codec"});
  write_control({argv[1], "control"});
  write_trace_files({argv[1], "trace_file"});
  write_trace_frames({argv[1], "trace_frame"});
  return 0;
}
