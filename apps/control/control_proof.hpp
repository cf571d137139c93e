// How the two ends of a control connection prove to each other that they know the job's secret.
#pragma once
#include <string>

#include "net/token.hpp"

namespace grapevine {

inline constexpr char kControlSocket[] = "control.sock";  // in the folder of a run
inline constexpr char kNonceHeader[] = "Grapevine-Nonce";
inline constexpr char kProofHeader[] = "Grapevine-Proof";

// `nonce`: of the server, for one request.
inline std::string proof_of_request(const std::string& secret, const std::string& nonce,
                                    const std::string& method, const std::string& path,
                                    const std::string& body) {
  return mac_of(secret, {"control", nonce, method, path, body});
}
inline std::string proof_of_answer(const std::string& secret, const std::string& nonce, int status,
                                   const std::string& body) {
  return mac_of(secret, {"control answer", nonce, std::to_string(status), body});
}

}  // namespace grapevine
