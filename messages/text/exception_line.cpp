#include "messages/text/exception_line.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <regex>
#include <system_error>

namespace grapevine {
namespace {

// Of the allocators of LibTorch for GPUs and for the host, of CUDA, of cuBLAS and cuDNN.
constexpr const char* kOutOfMemory[] = {"out of memory", "not enough memory",
                                        "can't allocate memory", "ALLOC_FAILED",
                                        "ALLOCATION_FAILED"};

bool contains(const std::string& line, const char* words) {
  return line.find(words) != std::string::npos;
}

// What the expression's group matches; empty: the line has no such place.
std::string part_of(const std::string& line, const char* expression) {
  std::smatch found;
  return std::regex_search(line, found, std::regex(expression)) ? found[1].str() : "";
}

}  // namespace

std::string out_of_memory_line(const std::exception& e, const std::string& line) {
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) return "out of memory (std::bad_alloc)";
  const bool by_words = std::any_of(std::begin(kOutOfMemory), std::end(kOutOfMemory),
                                    [&](const char* words) { return contains(line, words); });
  if (!by_words && dynamic_cast<const c10::OutOfMemoryError*>(&e) == nullptr) return "";
  const std::string gpu = part_of(line, "GPU ([0-9]+)");
  const bool host = contains(line, "CPUAllocator");
  std::string wanted = part_of(line, "[Tt]ried to allocate ([0-9.]+ [A-Za-z]+)");
  if (!wanted.empty()) wanted += " more were needed";
  std::string where = gpu.empty() ? "" : " on cuda:" + gpu;
  if (host) where = " on the host";
  return "out of memory" + where + " (" + (wanted.empty() ? line : wanted) +
         "): use a smaller --batch-size, with --accumulate for as many samples, or fewer workers " +
         (host ? "on this machine" : "for each device");
}

std::string exception_line(const std::exception_ptr& problem) {
  constexpr char kUnknown[] = "unknown exception";
  try {
    if (problem) std::rethrow_exception(problem);
  } catch (const std::system_error& error) {
    // std::thread throws this where there are too many threads.
    if (error.code() == std::errc::resource_unavailable_try_again)
      return std::string("no more threads (") + error.what() +
             "; ulimit -u, ulimit -v and a container's limit of processes bound them)";
    return error.what();
  } catch (const std::exception& error) {
    const std::string text = error.what();
    const std::string line = text.substr(0, text.find('\n'));
    if (std::string memory = out_of_memory_line(error, line); !memory.empty()) return memory;
    return line.empty() ? kUnknown : line;
  } catch (...) {
    return kUnknown;
  }
  return kUnknown;
}

}  // namespace grapevine
