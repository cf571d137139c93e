#include "tests/gpu/cuda/race/image.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

namespace racecheck {
namespace {

struct Symbol {
  std::uintptr_t value;
  std::size_t bytes;
  unsigned type;
  std::string name;  // mangled
};

// Of the program itself, from its file.
std::vector<Symbol> read_symbols() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> file((std::istreambuf_iterator<char>(in)), {});
  const auto read = [&](auto& to, std::size_t at) {
    if (at + sizeof to > file.size())
      throw std::runtime_error("the program's file ends early: its symbols cannot be read");
    std::memcpy(&to, file.data() + at, sizeof to);
  };
  ElfW(Ehdr) header;
  read(header, 0);
  std::vector<ElfW(Shdr)> sections(header.e_shnum);
  for (std::size_t i = 0; i < sections.size(); ++i)
    read(sections[i], header.e_shoff + i * header.e_shentsize);
  std::vector<Symbol> symbols;
  for (const ElfW(Shdr) & section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const std::size_t names = sections[section.sh_link].sh_offset;
    for (std::size_t at = 0; at < section.sh_size; at += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      read(symbol, section.sh_offset + at);
      if (symbol.st_shndx != SHN_UNDEF)
        symbols.push_back({symbol.st_value, symbol.st_size,
                           static_cast<unsigned>(ELF64_ST_TYPE(symbol.st_info)),
                           file.data() + names + symbol.st_name});
    }
  }
  if (symbols.empty())
    throw std::runtime_error("the program has no symbol table: it must not be stripped");
  return symbols;
}

const std::vector<Symbol>& symbols() {
  static const std::vector<Symbol> all = read_symbols();
  return all;
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

// The first object that is listed is the program.
dl_phdr_info own_header() {
  dl_phdr_info own{};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<dl_phdr_info*>(to) = *info;
        return 1;
      },
      &own);
  return own;
}

std::string without(std::string text, const std::string& part) {
  for (std::size_t at; !part.empty() && (at = text.find(part)) != std::string::npos;)
    text.erase(at, part.size());
  return text;
}

// What addr2line prints, "" where it cannot.
std::string addr2line(std::uintptr_t address) {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/exe", static_cast<int>(getpid()));
  std::ostringstream command;
  command << "addr2line -e " << path.data() << " -f -C -i -p 0x" << std::hex
          << address - load_bias() << " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> out(popen(command.str().c_str(), "r"), pclose);
  if (out == nullptr) return "";
  std::string text;
  std::array<char, 512> part{};
  while (std::fgets(part.data(), part.size(), out.get()) != nullptr) text += part.data();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.find("??") == std::string::npos ? text : "";
}

std::string find_line(std::uintptr_t address) {
  std::string line = addr2line(address);
  if (line.empty()) line = function_at(address);
  if (line.empty()) line = "an unknown place";
  return without(
      without(without(line, std::string(GRAPEVINE_SOURCE_DIR) + "/"), "grapevine::cuda::"),
      "(anonymous namespace)::");
}

}  // namespace

std::uintptr_t load_bias() {
  static const std::uintptr_t bias = own_header().dlpi_addr;
  return bias;
}

std::vector<Variable> shared_variables() {
  const auto* const block = static_cast<const char*>(own_header().dlpi_tls_data);
  std::vector<Variable> variables;
  for (const Symbol& symbol : symbols())
    if (symbol.type == STT_TLS && symbol.bytes > 0 && symbol.name.rfind("_ZZ", 0) == 0)
      variables.push_back({reinterpret_cast<std::uintptr_t>(block) + symbol.value, symbol.bytes,
                           demangled(symbol.name)});
  return variables;
}

std::string function_at(std::uintptr_t address) {
  const std::uintptr_t value = address - load_bias();
  for (const Symbol& symbol : symbols())
    if (symbol.type == STT_FUNC && value - symbol.value < symbol.bytes)
      return without(without(demangled(symbol.name), "grapevine::cuda::"),
                     "(anonymous namespace)::");
  return "";
}

std::string line_of(std::uintptr_t address) {
  static std::map<std::uintptr_t, std::string> known;
  const auto [at, is_new] = known.try_emplace(address);
  if (is_new) at->second = find_line(address);
  return at->second;
}

}  // namespace racecheck
