// One HTTP request over loopback, for tests.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace grapevine {

// A connection to the port, or -1.
inline int connect_to(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    return socket;
  ::close(socket);
  return -1;
}

// The whole answer, headers included; empty where nobody listens. `headers`: of the request, each
// with its end of line.
inline std::string http_request(int port, const std::string& method, const std::string& path,
                                const std::string& headers = "") {
  const int socket = connect_to(port);
  if (socket < 0) return "";
  std::string answer;
  const std::string request =
      method + " " + path + " HTTP/1.0\r\nHost: localhost\r\n" + headers + "\r\n";
  if (::send(socket, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(socket);
  return answer;
}

inline std::string http_get(int port, const std::string& path) {
  return http_request(port, "GET", path);
}

}  // namespace grapevine
