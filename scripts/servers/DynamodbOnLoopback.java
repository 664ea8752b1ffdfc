import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.dynamodb.services.local.main.ServerRunner;

/** Starts DynamoDB Local on loopback only, for which it has no option of its own. */
class DynamodbOnLoopback {
    public static void main(String[] arguments) throws Exception {
        var local = ServerRunner.createServerFromCommandLineArgs(arguments);
        var field = local.getClass().getDeclaredField("server");
        field.setAccessible(true);
        for (var connector : ((Server) field.get(local)).getConnectors()) {
            ((ServerConnector) connector).setHost("127.0.0.1");
        }
        local.safeStart();
        local.join();
    }
}
