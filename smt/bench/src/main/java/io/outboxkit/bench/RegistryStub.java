package io.outboxkit.bench;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Stub of the Apicurio registry's API, version 2. It serves and counts the requests that the
 * converter sends until its cache is filled.
 */
final class RegistryStub implements AutoCloseable {
  private static final Pattern VERSION =
      Pattern.compile(".*/artifacts/([^/]+)/versions/[^/]+/meta");
  private static final Pattern CONTENT = Pattern.compile(".*/ids/globalIds/(\\d+)/?");
  private static final Pattern REFERENCES = Pattern.compile(".*/ids/globalIds/\\d+/references");
  private static final Pattern SUBJECT = Pattern.compile("library\\.(.*)-value");
  private static final String URL_OPTION = "apicurio.registry.url";

  private final AtomicInteger requests = new AtomicInteger();
  private final Map<String, String> config;
  private final HttpServer server;
  private String lastContent;

  private RegistryStub(Map<String, String> config) throws IOException {
    this.config = config;
    this.server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/", this::respond);
    server.start();
  }

  /** Start a stub and set its address in the config if the config has a registry. */
  static RegistryStub of(Map<String, String> config) {
    if (config.keySet().stream().noneMatch(name -> name.endsWith(URL_OPTION))) {
      return null;
    }
    try {
      RegistryStub stub = new RegistryStub(config);
      String url = "http://127.0.0.1:" + stub.server.getAddress().getPort() + "/apis/registry/v2";
      config.replaceAll((name, value) -> name.endsWith(URL_OPTION) ? url : value);
      return stub;
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  int requests() {
    return requests.get();
  }

  @Override
  public void close() {
    server.stop(0);
  }

  private void respond(HttpExchange exchange) throws IOException {
    requests.incrementAndGet();
    String content = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
    String path = exchange.getRequestURI().getPath();
    String response;
    Matcher version = VERSION.matcher(path);
    if (exchange.getRequestMethod().equals("POST")) {
      lastContent = content;
      response = metadata(exchange.getRequestHeaders().getFirst("X-Registry-ArtifactId"));
    } else if (version.matches()) {
      lastContent = declaredSchema(version.group(1));
      response = metadata(version.group(1));
    } else if (REFERENCES.matcher(path).matches()) {
      response = "[]";
    } else if (CONTENT.matcher(path).matches()) {
      response = lastContent;
    } else {
      response = null;
    }
    byte[] bytes = (response == null ? "no " + path : response).getBytes(StandardCharsets.UTF_8);
    exchange.getResponseHeaders().add("Content-Type", "application/json");
    exchange.sendResponseHeaders(response == null ? 404 : 200, bytes.length);
    exchange.getResponseBody().write(bytes);
    exchange.close();
  }

  private static String metadata(String artifact) {
    return "{\"id\":\""
        + artifact
        + "\",\"version\":\"1\",\"type\":\"AVRO\",\"state\":\"ENABLED\",\"globalId\":7,"
        + "\"contentId\":7,\"references\":[]}";
  }

  /** Return the schema that ParsePayload has in the config. */
  private String declaredSchema(String artifact) {
    Matcher subject = SUBJECT.matcher(artifact);
    return subject.matches()
        ? config.get("transforms.payload.aggregate." + subject.group(1) + ".schema.1")
        : null;
  }
}
