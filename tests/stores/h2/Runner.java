import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Reader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Clob;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.sql.Types;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.h2.tools.SimpleResultSet;

/**
 * Statements in, results out, a line each: `id session command argument value...`.
 *
 * With values for several times its parameters a statement is run as often.
 *
 * Commands: open URL, run STATEMENT, parse STATEMENT, commit, rollback, autocommit on|off, close. Answers: `id ok
 * COUNT COLUMNS value...` or `id error CODE MESSAGE`. A value is n (null), i (a number), b
 * (bytes in hex), t (an instant) or s (a text); texts are in base64 of their UTF-8. Each session
 * has a thread of its own, so that one may wait for the lock of another.
 */
public class Runner {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private final Map<String, Session> sessions = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        new Runner().serve();
    }

    private void serve() throws Exception {
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            sessions.computeIfAbsent(words[1], name -> new Session()).add(words);
        }
        System.exit(0);
    }

    /** SQL Server's, as far as the dialect needs it. */
    public static Integer isJson(String text) {
        return text == null ? null : text.startsWith("{") && text.endsWith("}") ? 1 : 0;
    }

    /** SQL Server's. */
    public static LocalDateTime utcNow() {
        return LocalDateTime.now(ZoneOffset.UTC);
    }

    /** SQL Server's, of a text. */
    public static Long dataLength(String text) {
        return text == null ? null : Long.valueOf(2L * text.length());
    }

    /** What SQL Server makes of STRING_SPLIT and CONVERT. */
    public static ResultSet uuids(String text) {
        SimpleResultSet rows = new SimpleResultSet();
        rows.addColumn("UUID", Types.BINARY, 16, 0);
        if (text != null) { // H2 asks without, to learn of the columns.
            for (String one : text.split(",")) {
                rows.addRow((Object) bytes(one));
            }
        }
        return rows;
    }

    private static class Session {
        private final ExecutorService thread = Executors.newSingleThreadExecutor();
        private Connection connection;

        void add(String[] words) {
            thread.execute(() -> {
                // H2 looks there for the methods of ours.
                Thread.currentThread().setContextClassLoader(Runner.class.getClassLoader());
                String answer;
                try {
                    answer = "ok " + done(words);
                } catch (SQLException error) {
                    answer = "error " + error.getErrorCode() + " " + encoded(error.getMessage());
                } catch (Exception error) {
                    answer = "error 0 " + encoded(error.toString());
                }
                synchronized (OUT) {
                    OUT.println(words[0] + " " + answer);
                    OUT.flush();
                }
            });
        }

        private String done(String[] words) throws Exception {
            switch (words[2]) {
                case "open":
                    connection = DriverManager.getConnection(decoded(words[3]));
                    return "0 0";
                case "run":
                    return run(decoded(words[3]), words);
                case "parse":
                    connection.prepareStatement(decoded(words[3])).close();
                    return "0 0";
                case "autocommit":
                    connection.setAutoCommit(words[3].equals("on"));
                    return "0 0";
                case "commit":
                    connection.commit();
                    return "0 0";
                case "rollback":
                    connection.rollback();
                    return "0 0";
                default:
                    connection.close();
                    thread.shutdown();
                    return "0 0";
            }
        }

        private String run(String text, String[] words) throws Exception {
            try (PreparedStatement statement = connection.prepareStatement(text)) {
                int size = statement.getParameterMetaData().getParameterCount();
                int changed = 0;
                int next = 4;
                do {
                    for (int position = 1; position <= size; position++) {
                        statement.setObject(position, value(words[next++]));
                    }
                    if (!statement.execute()) {
                        changed += statement.getUpdateCount();
                    }
                } while (next < words.length);
                if (statement.getResultSet() == null) {
                    return changed + " 0";
                }
                ResultSet found = statement.getResultSet();
                int columns = found.getMetaData().getColumnCount();
                StringBuilder answer = new StringBuilder();
                int rows = 0;
                for (; found.next(); rows++) {
                    for (int column = 1; column <= columns; column++) {
                        answer.append(' ').append(said(found.getObject(column)));
                    }
                }
                return rows + " " + columns + answer;
            }
        }
    }

    private static Object value(String word) {
        String rest = word.substring(1);
        switch (word.charAt(0)) {
            case 'n':
                return null;
            case 'i':
                return Long.valueOf(rest);
            case 't':
                return LocalDateTime.parse(rest);
            case 'b':
                return bytes(rest);
            default:
                return decoded(rest);
        }
    }

    private static String said(Object value) throws Exception {
        if (value == null) {
            return "n";
        }
        if (value instanceof BigDecimal number) {
            return "i" + number.toBigIntegerExact();
        }
        if (value instanceof Number number) {
            return "i" + number.longValue();
        }
        if (value instanceof Timestamp instant) {
            return "t" + instant.toLocalDateTime();
        }
        if (value instanceof byte[] bytes) {
            return "b" + HexFormat.of().formatHex(bytes);
        }
        if (value instanceof Clob text) {
            StringBuilder all = new StringBuilder();
            char[] part = new char[65_536];
            try (Reader reader = text.getCharacterStream()) {
                for (int size = reader.read(part); size >= 0; size = reader.read(part)) {
                    all.append(part, 0, size);
                }
            }
            return "s" + encoded(all.toString());
        }
        return "s" + encoded(value.toString());
    }

    private static byte[] bytes(String hex) {
        return HexFormat.of().parseHex(hex);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String decoded(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
