// A Stream whose bytes are encrypted.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "net/tcp/tcp_stream.hpp"

struct ssl_ctx_st;

namespace grapevine::tcp {

enum class TlsSide { accepted, dialled };

// OpenSSL makes a system call for each record of 16 KiB; this stream collects records and sends
// many at once. OpenSSL's object is used by one thread at a time, for a record. `hosts`: the
// certificate of the other side has to be for one of them; empty: for any.
std::unique_ptr<Stream> make_tls_stream(ssl_ctx_st* context, FileDescriptor socket, TlsSide side,
                                        std::vector<std::string> hosts);

}  // namespace grapevine::tcp
