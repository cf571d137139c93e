#include "apps/node/make_certificates.hpp"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/console/json_text.hpp"
#include "apps/node/new_folder.hpp"
#include "messages/text/lower_case.hpp"
#include "net/addresses.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tls/tls_certificates.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostDays = 36500;
constexpr char kNameCharacters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:";

struct CertificateTarget {
  std::string host;  // empty: all
  std::string folder;
  std::vector<std::string> names;  // in the certificate, `host` first; none: for all machines
};

// "node1=10.0.0.1=node1.lan": a machine and its other names and addresses.
std::vector<std::string> names_of(const std::string& host) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = host.find('=', begin);
    names.push_back(host.substr(begin, end == std::string::npos ? end : end - begin));
  }
  return names;
}

bool is_host_name(const std::string& name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_not_of(kNameCharacters) == std::string::npos;
}

// "10.0.0.1:29400" and "node1:29400": a colon that is of no IPv6 address.
bool has_port(const std::string& name) {
  return name.find(':') != std::string::npos && !address_in_numbers(name);
}

// The name or address in "node1:29400", "fd00::1:29400" or "[fd00::1]:29400"; empty: none is.
std::string without_port(const std::string& name) {
  const std::string bare = tcp::split_port(name).host;
  const bool is_name = is_host_name(bare) && bare.find(':') == std::string::npos;
  return is_name || address_in_numbers(bare) ? bare : "";
}

Error not_a_name(const std::string& host, const std::string& name) {
  const std::string bare = without_port(name);
  if (bare.empty() || (name.front() != '[' && !has_port(name)))
    return bad_input("--hosts '" + host +
                     "': expected names of machines, each with others after '=': node1=10.0.0.1");
  return bad_input("--hosts '" + host + "': '" + name +
                   "' is neither a name nor an address: certificates name no ports, write '" +
                   bare + "'");
}

// Two machines with one name could each answer for the other. Names that differ in the case of
// letters alone are one name, and so are two forms of one address.
Expected<std::vector<CertificateTarget>> places_of(const CertificateOptions& options) {
  if (options.hosts.empty()) return std::vector<CertificateTarget>{{"", options.folder, {}}};
  std::vector<CertificateTarget> places;
  std::set<std::string> taken;
  for (const std::string& host : options.hosts) {
    std::vector<std::string> names = names_of(host);
    for (const std::string& name : names) {
      if (!is_host_name(name) || has_port(name)) return not_a_name(host, name);
      if (!taken.insert(address_in_numbers(name).value_or(lower_case(name))).second)
        return bad_input("--hosts: '" + name + "' is named twice");
    }
    const std::string& first = names.front();
    places.push_back({first, (fs::path(options.folder) / first).string(), names});
  }
  return places;
}

// Whether a file is to be replaced. The certificates of one CA are for each other: where a file
// exists none is written, unless it may be replaced. Errors (bad_input): it may not.
Expected<bool> replaces_any(const std::vector<CertificateTarget>& places, bool overwrite) {
  std::error_code error;
  for (const CertificateTarget& place : places)
    for (const char* name : tcp::kCertificateFiles) {
      const fs::path file = fs::path(place.folder) / name;
      if (!fs::exists(fs::symlink_status(file, error))) continue;
      if (overwrite) return true;
      return bad_input(file.string() +
                       " exists: choose another folder, or replace it with --overwrite");
    }
  return false;
}

void print_json(const CertificateOptions& options, const std::vector<CertificateTarget>& places,
                bool at_once, std::ostream& out) {
  nlohmann::ordered_json folders = nlohmann::ordered_json::array();
  for (const CertificateTarget& place : places) {
    nlohmann::ordered_json& folder = folders.emplace_back();
    folder["folder"] = place.folder;
    folder["host"] = nullptr;
    if (!place.host.empty()) folder["host"] = place.host;
    folder["names"] = place.names;
  }
  nlohmann::ordered_json all;
  all["event"] = "certificates";
  all["folders"] = std::move(folders);
  all["days"] = options.days;
  all["at_once"] = at_once;
  out << json_text(all) << '\n';
}

void print_for_people(const CertificateOptions& options,
                      const std::vector<CertificateTarget>& places, bool at_once,
                      std::ostream& out) {
  for (const CertificateTarget& place : places)
    out << "wrote " << place.folder << ": ca.pem, cert.pem and key.pem (private, mode 0600), for "
        << (place.names.empty() ? "all machines" : fmt::format("{}", fmt::join(place.names, ", ")))
        << '\n';
  if (!at_once)
    out << "the file system exchanges no folders: " << options.folder
        << " was missing for a moment, and processes that started then must start again\n";
  out << "valid for " << options.days << " days. ";
  if (options.hosts.empty())
    out << "Copy this folder to each machine, over a safe way such as scp -rp";
  else
    out << "Copy each folder to its machine, over a safe way such as scp -rp";
  out << "; then give --tls FOLDER to every node, train and launch.\n";
  if (!options.hosts.empty())
    out << "A process that dials a machine by another name or address than those above refuses its "
           "certificate.\n";
  out << "The key that signed them is not kept: a machine that comes later gets a copy of a "
         "folder, "
         "or all get new ones.\n";
}

}  // namespace

Expected<void> make_certificates(const CertificateOptions& options, std::ostream& out) {
  if (options.days < 1 || options.days > kMostDays)
    return bad_input(fmt::format("--days {}: expected 1..{}", options.days, kMostDays));
  const auto places = places_of(options);
  if (!places) return places.error();
  const auto replaces = replaces_any(*places, options.overwrite);
  if (!replaces) return replaces.error();
  auto made = NewFolder::make(options.folder, *replaces);
  if (!made) return made.error();
  const std::chrono::hours term{24 * options.days};
  const tcp::Authority authority(term);
  for (const CertificateTarget& place : *places) {
    const std::string folder = (made->path() / place.host).string();
    if (auto issued = authority.issue(folder, term, place.names); !issued) return issued;
  }
  const auto at_once = made->commit();
  if (!at_once) return at_once.error();
  (options.json ? print_json : print_for_people)(options, *places, *at_once, out);
  return {};
}

}  // namespace grapevine
