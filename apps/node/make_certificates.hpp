// `grapevine node --make-certificates DIR`: the files of --tls.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct CertificateOptions {
  std::string folder;
  std::vector<std::string> hosts;  // a sub-folder with a key of its own for each; none: one for all
  std::int64_t days = 825;
  bool overwrite = false;
};

// Writes ca.pem, cert.pem and key.pem of a new CA, and says in `out` what to copy where. The CA's
// own key is not kept: more machines get a copy of a folder, or all get new ones. At any moment,
// also after an error, the folder has all old files or all new ones (see NewFolder). Errors
// (bad_input): a file exists; days or names that are none; (io): a folder cannot be written.
Expected<void> make_certificates(const CertificateOptions& options, std::ostream& out);

}  // namespace grapevine
