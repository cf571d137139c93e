// What the engine writes as model.pt and as a rank's checkpoint: a file that torch.load takes
// without being told to trust it.
#include "actors/record/pickle_dict.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <random>
#include <set>
#include <sstream>

#include "actors/run/state_bytes.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace pickle_dict_test {

// A state with numbers of every width, texts, and more names than a short memo holds.
StateDict state_of_every_kind() {
  StateDict state;
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  int number = 0;
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{-1}, std::int64_t{255}, std::int64_t{256},
        std::int64_t{65535}, std::int64_t{65536}, std::int64_t{1} << 31, std::int64_t{1} << 40,
        kMost, kLeast})
    state.put("integer." + std::to_string(number++), value);
  state.put("number", 0.1);
  state.put("text", std::string("any\0bytes\xff", 10));
  state.put("empty", std::string());
  for (int i = 0; i < 300; ++i) state.put("tensor." + std::to_string(i), at::full({3}, i));
  state.put("long", at::arange(7, at::kLong));
  state.put("double", at::arange(7, at::kDouble));
  state.put("nothing", at::empty({0}));
  return state;
}

void expect_same(const StateDict& a, const StateDict& b) {
  ASSERT_EQ(a.entries().size(), b.entries().size());
  for (const auto& [name, value] : a.entries()) {
    const auto other = b.entries().find(name);
    ASSERT_NE(other, b.entries().end()) << name;
    ASSERT_EQ(value.index(), other->second.index()) << name;
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      const auto& its = std::get<at::Tensor>(other->second);
      EXPECT_EQ(tensor->dtype(), its.dtype()) << name;
      EXPECT_TRUE(tensor->equal(its)) << name;
    } else {
      const auto same = [&](auto kind) {
        const auto* own = std::get_if<decltype(kind)>(&value);
        return own == nullptr || *own == std::get<decltype(kind)>(other->second);
      };
      EXPECT_TRUE(same(0.0) && same(std::int64_t{0}) && same(std::string())) << name;
    }
  }
}

std::string pickle_in(const std::vector<char>& archive) {
  std::istringstream stream(std::string(archive.begin(), archive.end()));
  caffe2::serialize::PyTorchStreamReader reader(&stream);
  auto [data, size] = reader.getRecord("data.pkl");
  return {static_cast<const char*>(data.get()), size};
}

// The functions and classes that a pickle names, "module name" each. Fails at an operation that
// torch.load(weights_only=True) does not know (those of PyTorch 2.6).
std::set<std::string> globals_of(const std::string& pickle) {
  std::set<std::string> globals;
  const std::string plain =
      "\x80"
      "()]}RbaesuNt\x85\x86\x87\x88\x89Q.";
  std::size_t at = 0;
  const auto line = [&] {
    const std::size_t begin = at;
    at = pickle.find('\n', begin) + 1;
    return pickle.substr(begin, at - 1 - begin);
  };
  while (at < pickle.size()) {
    const char op = pickle[at++];
    if (op == 'c') {
      const std::string module = line();
      globals.insert(module + " " + line());
    } else if (op == '\x80' || op == 'K' || op == 'h' || op == 'q') {
      at += 1;
    } else if (op == 'M') {
      at += 2;
    } else if (op == 'J' || op == 'j' || op == 'r') {
      at += 4;
    } else if (op == 'G') {
      at += 8;
    } else if (op == '\x8a') {
      at += 1 + static_cast<unsigned char>(pickle[at]);
    } else if (op == 'X') {
      std::uint32_t size = 0;
      std::memcpy(&size, pickle.data() + at, sizeof size);
      at += sizeof size + size;
    } else if (plain.find(op) == std::string::npos) {
      ADD_FAILURE() << "operation " << static_cast<int>(op) << " at byte " << at - 1;
      return globals;
    }
  }
  EXPECT_EQ(at, pickle.size());
  EXPECT_EQ(pickle.back(), '.');
  return globals;
}

// Other programs may write tensors with more elements than memory.
TEST(PickleDict, AnExpandedTextIsReadInItsMemory) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  constexpr std::int64_t kLength = 1 << 20;
  dict.insert("text:a", at::full({1}, 'x', at::kByte).expand({kLength}));
  dict.insert("text:b", at::arange(6, at::kByte).view({2, 3}).t());
  const auto state = from_bytes(pickle_dict(dict));
  ASSERT_TRUE(state.ok()) << state.error().message;
  EXPECT_EQ(*state->text("a"), std::string(kLength, 'x'));
  EXPECT_EQ(*state->text("b"), std::string("\0\3\1\4\2\5", 6));
}

TEST(PickleDict, NamesNothingButTensorsAndTheirMemory) {
  const std::set<std::string> allowed = {
      "collections OrderedDict", "torch._utils _rebuild_tensor_v2",
      "torch FloatStorage",      "torch DoubleStorage",
      "torch LongStorage",       "torch ByteStorage"};
  for (const std::string& name : globals_of(pickle_in(to_bytes(state_of_every_kind()))))
    EXPECT_EQ(allowed.count(name), 1u) << name;
}

TEST(PickleDict, StatesComeBack) {
  const StateDict state = state_of_every_kind();
  const auto back = from_bytes(to_bytes(state));
  ASSERT_TRUE(back.ok()) << back.error().message;
  expect_same(state, *back);
}

// Checkpoints of earlier versions: the dict's type stands in the pickle.
TEST(PickleDict, StatesWithTypeTagsComeBackToo) {
  StateDict state;
  state.put("step", std::int64_t{7});
  state.put("x", at::arange(5, at::kFloat));
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  dict.insert("step", std::int64_t{7});
  dict.insert("x", at::arange(5, at::kFloat));
  const std::vector<char> tagged = torch::jit::pickle_save(dict);
  ASSERT_EQ(globals_of(pickle_in(tagged)).count("torch.jit._pickle restore_type_tag"), 1u);
  const auto back = from_bytes(tagged);
  ASSERT_TRUE(back.ok()) << back.error().message;
  expect_same(state, *back);
}

rlim_t address_space_in_use() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

constexpr std::int64_t kLargeState = 256'000'000;  // bytes

// 0: it has been written; 1: memory was too short for it. `room`: bytes of memory to spare.
[[noreturn]] void write_with(rlim_t room) {
  StateDict state;
  state.put("x", at::zeros({kLargeState}, at::kByte));
  const rlim_t limit = address_space_in_use() + room;
  const rlimit few{limit, limit};
  if (::setrlimit(RLIMIT_AS, &few) != 0) std::_Exit(2);
  try {
    std::_Exit(to_bytes(state).size() > kLargeState ? 0 : 3);
  } catch (const std::bad_alloc&) {
    std::_Exit(1);
  }
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kLimitsMemory = false;  // it needs more address space than a limit leaves
#else
constexpr bool kLimitsMemory = true;
#endif

// An exception, which costs a checkpoint: the destructor of a writer amid a record ends the
// process.
TEST(PickleDict, AStateThatMemoryIsTooShortForThrows) {
  if (!kLimitsMemory) GTEST_SKIP();
  EXPECT_EXIT(write_with(kLargeState / 2), testing::ExitedWithCode(1), "");
}

TEST(PickleDict, OneMoreCopyOfTheStateIsEnough) {
  if (!kLimitsMemory) GTEST_SKIP();
  EXPECT_EXIT(write_with(kLargeState + (16 << 20)), testing::ExitedWithCode(0), "");
}

TEST(PickleDict, PythonLoadsItWithWeightsOnly) {
  ProcessOptions options;
  options.program = "/usr/bin/env";
  const TemporaryDirectory folder;
  options.directory = folder.path();
  const auto python = [&](const std::string& code) {
    return run_process({"python3", "-c", code}, options);
  };
  const ProcessResult version = python("import torch; print(torch.__version__)");
  if (version.exit_code != 0) GTEST_SKIP() << "python3 has no torch";
  const std::vector<char> bytes = to_bytes(state_of_every_kind());
  std::ofstream(folder.path() / "state.pt", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const ProcessResult result = python(R"(
import torch
state = torch.load("state.pt", weights_only=True)
assert type(state) is dict, type(state)
assert len(state) == 11 + 1 + 2 + 300 + 3, len(state)
assert [state["integer.%d" % i] for i in range(11)] == [
    0, 1, -1, 255, 256, 65535, 65536, 2**31, 2**40, 2**63 - 1, -2**63]
assert state["number"] == 0.1
assert bytes(state["text:text"].tolist()) == b"any\0bytes\xff"
assert state["text:empty"].numel() == 0 and state["nothing"].numel() == 0
for i in range(300):
    assert state["tensor.%d" % i].tolist() == [i] * 3
assert state["long"].tolist() == list(range(7)) and state["long"].dtype == torch.int64
assert state["double"].dtype == torch.float64
print("whole")
)");
  EXPECT_EQ(result.exit_code, 0) << version.out << result.describe();
  EXPECT_EQ(result.out, "whole\n");
}

// Around the ends of chunks, too.
TEST(PickleDict, ChunksHaveTheSameBytes) {
  const StateDict state = state_of_every_kind();
  const std::vector<char> bytes = to_bytes(state);
  const auto all = static_cast<std::int64_t>(bytes.size());
  for (const std::int64_t length :
       {std::int64_t{1}, std::int64_t{7}, std::int64_t{4096}, all - 1, all, all + 1, 3 * all}) {
    std::vector<char> together;
    std::int64_t parts = 0;
    for (const FrozenTensor& chunk : to_chunks(state, length)) {
      const auto* begin = reinterpret_cast<const char*>(chunk.data<std::uint8_t>());
      together.insert(together.end(), begin, begin + chunk.numel());
      EXPECT_EQ(chunk.numel(), std::min(length, all - parts * length)) << length;
      ++parts;
    }
    EXPECT_TRUE(together == bytes) << length;
    EXPECT_EQ(parts, (all + length - 1) / length);
  }
}

}  // namespace pickle_dict_test
}  // namespace grapevine
