#include "net/tcp/tls/tls_certificates.hpp"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <utility>

#include "messages/check.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/tcp_stream.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/tcp/tls/tls_names.hpp"

namespace grapevine::tcp {
namespace {

struct Freed {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
};
using Key = std::unique_ptr<EVP_PKEY, Freed>;
using Certificate = std::unique_ptr<X509, Freed>;

constexpr std::size_t kLongestHost = 40;  // a common name has 64 characters at most

void require(bool ok) { GRAPEVINE_CHECK(ok, "OpenSSL cannot make a certificate"); }

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr);
  return key;
}

void add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value));
  require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1);
}

// Valid from a day ago, because clocks differ.
Certificate make_certificate(EVP_PKEY* key, const std::string& name, std::chrono::seconds term) {
  Certificate made(X509_new());
  require(made != nullptr);
  X509_set_version(made.get(), X509_VERSION_3);
  std::uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made.get()), serial >> 1U);
  X509_gmtime_adj(X509_getm_notBefore(made.get()), -24 * 3600);
  X509_gmtime_adj(X509_getm_notAfter(made.get()), static_cast<long>(term.count()));
  require(X509_set_pubkey(made.get(), key) == 1);
  require(X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                                     reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                     0) == 1);
  return made;
}

template <class Write>
std::string pem(Write write) {
  const std::unique_ptr<BIO, Freed> bio(BIO_new(BIO_s_mem()));
  require(bio != nullptr && write(bio.get()) == 1);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  return pem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

// Never over an existing file.
Expected<void> write_new(const std::string& path, const std::string& text, mode_t mode) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.get() < 0 && errno == EEXIST)
    return bad_input(path + " exists: choose another folder, or remove the certificates in it");
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return Error{Errc::io, path + ": cannot be written: " + text_of_system_error(errno)};
  return {};
}

}  // namespace

struct Authority::Impl {
  Key key = make_key();
  Certificate certificate;
};

Authority::Authority(std::chrono::seconds term) : impl_(std::make_unique<Impl>()) {
  EVP_PKEY* const key = impl_->key.get();
  impl_->certificate = make_certificate(key, "Grapevine CA", term);
  X509* const own = impl_->certificate.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  add_extension(own, own, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(own, own, NID_key_usage, "critical,keyCertSign");
  add_extension(own, own, NID_subject_key_identifier, "hash");
  require(X509_sign(own, key, EVP_sha256()) > 0);
}

Authority::~Authority() = default;

Expected<void> Authority::issue(const std::string& folder, std::chrono::seconds term,
                                const std::vector<std::string>& hosts) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{Errc::io, folder + ": cannot be made: " + error.message()};
  for (const char* name : kCertificateFiles)
    if (std::filesystem::exists(folder + "/" + name, error))
      return bad_input(folder + "/" + name +
                       " exists: choose another folder, or remove the certificates in it");
  X509* const ca = impl_->certificate.get();
  const Key key = make_key();
  const std::string on = hosts.empty() ? "" : " on " + hosts.front();
  const Certificate made =
      make_certificate(key.get(), "Grapevine process" + on.substr(0, kLongestHost), term);
  X509_set_issuer_name(made.get(), X509_get_subject_name(ca));
  add_extension(made.get(), ca, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(made.get(), ca, NID_key_usage, "critical,digitalSignature");
  add_extension(made.get(), ca, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(made.get(), ca, NID_authority_key_identifier, "keyid");
  if (!hosts.empty())
    add_extension(made.get(), ca, NID_subject_alt_name, subject_alt_names(hosts).c_str());
  require(X509_sign(made.get(), impl_->key.get(), EVP_sha256()) > 0);
  const std::string secret = pem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (auto written = write_new(folder + "/key.pem", secret, 0600); !written) return written;
  if (auto written = write_new(folder + "/cert.pem", pem_of(made.get()), 0644); !written)
    return written;
  if (auto written = write_new(folder + "/ca.pem", pem_of(ca), 0644); !written) return written;
  const std::string check = folder + "/" + kCheckHosts;
  if (hosts.empty() || std::filesystem::exists(check, error)) return {};
  return write_new(check,
                   "Processes that dial compare the names in the other certificate with the name "
                   "or address that they dial.\n",
                   0644);
}

}  // namespace grapevine::tcp
