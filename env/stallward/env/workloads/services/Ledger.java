import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * A service with its data on the heap: a ledger of accounts, each with a list of bookings. A
 * request ({@code GET /NUMBER,NUMBER,...}, HTTP/1.1 on a Unix socket) walks through the bookings of
 * some accounts, adds one to each and gets their balances. New bookings take the place of the
 * oldest, so that the collector has garbage among what lives long.
 *
 * <p>usage: java Ledger SOCKET ACCOUNTS SEED
 */
public final class Ledger {
  private static final int BOOKINGS = 16;

  private record Booking(long number, long cents, String text) {}

  private static final class Account {
    private final List<Booking> bookings = new ArrayList<>(BOOKINGS);
    private int oldest;

    synchronized long book(Booking booking) {
      if (bookings.size() < BOOKINGS) {
        bookings.add(booking);
      } else {
        bookings.set(oldest, booking);
        oldest = (oldest + 1) % BOOKINGS;
      }
      return bookings.stream().mapToLong(each -> each.cents() + each.text().length()).sum();
    }
  }

  private final Map<Integer, Account> accounts = new HashMap<>();
  private final SplittableRandom random;
  private long booked;

  private Ledger(int count, long seed) {
    random = new SplittableRandom(seed);
    for (int number = 0; number < count; number++) {
      Account account = new Account();
      for (int i = 0; i < BOOKINGS; i++) {
        account.book(nextBooking());
      }
      accounts.put(number, account);
    }
  }

  private synchronized Booking nextBooking() {
    long cents = random.nextLong(-100_000, 100_000);
    return new Booking(booked++, cents, "booking of " + cents + " as number " + booked);
  }

  private String answer(String head) {
    int from = head.indexOf('/');
    int to = head.indexOf(' ', from);
    StringBuilder balances = new StringBuilder();
    for (String word : head.substring(from + 1, to).split(",")) {
      Account account = accounts.get(Integer.parseInt(word));
      if (account == null) {
        return "HTTP/1.1 404 Not Found\r\nContent-Length: 13\r\n\r\nthat was all\n";
      }
      balances.append(word).append(' ').append(account.book(nextBooking())).append('\n');
    }
    String body = balances + "that was all\n";
    return "HTTP/1.1 200 OK\r\nContent-Length: " + body.length() + "\r\n\r\n" + body;
  }

  private void serve(SocketChannel client) {
    ByteBuffer bytes = ByteBuffer.allocate(4096);
    StringBuilder head = new StringBuilder();
    try (client) {
      while (client.read(bytes.clear()) >= 0) {
        head.append(StandardCharsets.US_ASCII.decode(bytes.flip()));
        for (int end; (end = head.indexOf("\r\n\r\n")) >= 0; head.delete(0, end + 4)) {
          ByteBuffer reply = ByteBuffer.wrap(answer(head.substring(0, end)).getBytes());
          while (reply.hasRemaining()) {
            client.write(reply);
          }
        }
      }
    } catch (IOException gone) {
      // The client has closed its connection.
    }
  }

  public static void main(String[] args) throws IOException {
    Ledger ledger = new Ledger(Integer.parseInt(args[1]), Long.parseLong(args[2]));
    Path path = Path.of(args[0]);
    Path early = Path.of(args[0] + ".early"); // under its name only once it answers
    try (var listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
      listener.bind(UnixDomainSocketAddress.of(early), 64);
      Files.move(early, path);
      while (true) {
        SocketChannel client = listener.accept();
        new Thread(() -> ledger.serve(client)).start();
      }
    }
  }
}
