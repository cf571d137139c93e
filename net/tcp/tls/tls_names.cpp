#include "net/tcp/tls/tls_names.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <optional>

#include "messages/text/control_characters.hpp"
#include "net/addresses.hpp"

namespace grapevine::tcp {
namespace {

constexpr std::size_t kMostShown = 4;  // names in an error

struct Freed {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
};

// In numbers; empty where it is no address.
std::string address_text(const ASN1_OCTET_STRING* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const int size = ASN1_STRING_length(bytes);
  const int family = size == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && size != sizeof(in6_addr)) return "";
  ::inet_ntop(family, ASN1_STRING_get0_data(bytes), text.data(), text.size());
  return address_in_numbers(text.data()).value_or("");
}

// As certificates have it: the zone of an address is a matter of this machine ("fe80::1%eth0"), and
// the last dot of a name one of its look-up ("node1.lan.").
std::string without_zone_or_dot(const std::string& host) {
  const std::string name = host.substr(0, host.find('%'));
  return name.substr(0, name.find_last_not_of('.') + 1);
}

// OpenSSL takes a dot at the start for all hosts of a domain.
bool names_host(X509* certificate, const std::string& host) {
  if (host.empty() || host.front() == '.') return false;
  if (const auto address = address_in_numbers(host)) {
    // Certificates of other tools may have an IPv4 address in IPv6; of IPv6 this is no address.
    const auto has = [certificate](const std::string& form) {
      return X509_check_ip_asc(certificate, form.c_str(), 0) == 1;
    };
    return has(*address) || has("::ffff:" + *address);
  }
  constexpr unsigned kFlags =
      X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
  return X509_check_host(certificate, host.data(), host.size(), kFlags, nullptr) == 1;
}

std::string listed(const std::vector<std::string>& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i <= kMostShown; ++i) {
    if (i > 0) text += i + 1 == names.size() || i == kMostShown ? last : ", ";
    text += i == kMostShown ? std::string("others") : without_control_characters(names[i]);
  }
  return text;
}

}  // namespace

std::string subject_alt_names(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) {
    const auto address = address_in_numbers(host);
    text += text.empty() ? "" : ",";
    text += address ? "IP:" + *address : "DNS:" + host;
  }
  return text;
}

std::vector<std::string> names_of(X509* certificate) {
  std::vector<std::string> found;
  const std::unique_ptr<GENERAL_NAMES, Freed> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    int kind = 0;
    const void* const value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(names.get(), i), &kind);
    const auto* const text = static_cast<const ASN1_STRING*>(value);
    if (kind == GEN_DNS)
      found.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                         static_cast<std::size_t>(ASN1_STRING_length(text)));
    else if (kind == GEN_IPADD && !address_text(text).empty())
      found.push_back(address_text(text));
  }
  return found;
}

std::string why_of_another_host(X509* certificate, const std::vector<std::string>& hosts) {
  std::vector<std::string> dialled;
  for (const std::string& host : hosts) {
    dialled.push_back(without_zone_or_dot(host));
    if (names_host(certificate, dialled.back())) return "";
  }
  const std::vector<std::string> names = names_of(certificate);
  return fmt::format(
      "it is for {}, not for {}: where that machine is meant, make certificates that name it with "
      "'grapevine node --make-certificates DIR --hosts NAME=ADDRESS', for all machines",
      names.empty() ? "no host" : listed(names, " and "), listed(dialled, " or "));
}

}  // namespace grapevine::tcp
