// The hosts that a certificate is for.
#pragma once
#include <string>
#include <vector>

struct x509_st;

namespace grapevine::tcp {

// "DNS:node1,IP:10.0.0.1" for a subjectAltName, of names and of addresses in numbers (see
// address_in_numbers()).
std::string subject_alt_names(const std::vector<std::string>& hosts);

// The names and addresses in its subjectAltName; other kinds are left out, and so is the subject,
// which is for people.
std::vector<std::string> names_of(x509_st* certificate);

// Empty where the certificate names one of `hosts`; else the reason, with the remedy. A wildcard in
// the certificate is its whole first label (RFC 9525), before at least two others: "*.rack.lan" is
// for node1.rack.lan.
std::string why_of_another_host(x509_st* certificate, const std::vector<std::string>& hosts);

}  // namespace grapevine::tcp
