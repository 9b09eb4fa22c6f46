package example;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.TreeMap;
import java.util.concurrent.Executors;

/** Tells the time. */
public final class Clock {
    public static void main(String[] args) throws IOException {
        String host = System.getenv().getOrDefault("HOST", "0.0.0.0");
        int port = Integer.parseInt(System.getenv().getOrDefault("PORT", "8000"));
        HttpServer server = HttpServer.create(new InetSocketAddress(host, port), 0);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/", exchange -> answer(exchange, "Hello from Java, it is " + Instant.now() + "\n"));
        server.createContext("/healthz", exchange -> answer(exchange, "ok"));
        server.createContext("/env", exchange -> answer(exchange, environment()));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> server.stop(5)));
        server.start();
    }

    private static String environment() {
        StringBuilder text = new StringBuilder();
        new TreeMap<>(System.getenv()).forEach((name, value) -> {
            if (name.startsWith("TOWPATH_")) {
                text.append(name).append('=').append(value).append('\n');
            }
        });
        return text.toString();
    }

    private static void answer(HttpExchange exchange, String text) throws IOException {
        byte[] body = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("content-type", "text/plain; charset=utf-8");
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
