// Hibernate through JDBC: the schema made, validated and extended by Hibernate, relations, batches, transactions, errors.
import jakarta.persistence.*;
import java.math.BigDecimal;
import java.net.*;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.*;
import java.util.*;
import java.util.function.*;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.hibernate.exception.ConstraintViolationException;
import org.hibernate.jpa.SpecHints;

public class Library {
    static void expect(boolean condition, String what) {
        if (!condition) throw new AssertionError(what);
    }

    static String decoded(String part) {
        return URLDecoder.decode(part, StandardCharsets.UTF_8);
    }

    /** `schema` is what Hibernate does to the schema first: create, update, validate. */
    static SessionFactory open(String schema, Class<?>... entities) {
        URI uri = URI.create(System.getenv("DRIVER_URL"));
        String[] login = uri.getRawUserInfo().split(":", 2);
        String mode = System.getenv("DRIVER_PLAIN") == null ? "require" : "prefer";
        Configuration configuration = new Configuration()
            .setProperty("hibernate.connection.url", "jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath() + "?sslmode=" + mode)
            .setProperty("hibernate.connection.username", decoded(login[0]))
            .setProperty("hibernate.connection.password", decoded(login[1]))
            .setProperty("hibernate.connection.pool_size", "5")
            .setProperty("hibernate.jdbc.batch_size", "25")
            .setProperty("hibernate.order_inserts", "true")
            .setProperty("hibernate.jdbc.fetch_size", "7")
            .setProperty("hibernate.hbm2ddl.auto", schema)
            .setProperty("hibernate.hbm2ddl.halt_on_error", "true");
        for (Class<?> entity : entities) configuration.addAnnotatedClass(entity);
        return configuration.buildSessionFactory();
    }

    /** The SQLSTATE at which a transaction fails. */
    static String code(SessionFactory factory, Consumer<Session> work) {
        try {
            factory.inTransaction(work);
            return "nothing";
        } catch (RuntimeException error) {
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                if (cause instanceof SQLException sql) return sql.getSQLState();
            }
            return error.toString();
        }
    }

    static void fill(SessionFactory factory) {
        factory.inTransaction(session -> {
            Subject[] subjects = {new Subject("mice"), new Subject("sleep"), new Subject("hazel")};
            for (Subject subject : subjects) session.persist(subject);
            for (int a = 0; a < 10; a++) {
                Author author = new Author("a" + a + "@example.org");
                author.address = new Address();
                author.address.street = "Street " + a;
                author.names.addAll(List.of("first", "name " + a));
                for (int b = 0; b < 12; b++) {
                    Book book = new Book(author, "book %d-%02d".formatted(a, b), 100 + b);
                    book.price = new BigDecimal(b + ".50");
                    book.published = LocalDate.of(2020, 2, 29).plusDays(b);
                    book.details.put("nr", "" + b);
                    book.tags = new String[] {"x", "t" + b};
                    book.cover = new byte[] {0, -1, (byte) b};
                    book.reading = Duration.ofMinutes(90 + b);
                    book.shelf = b % 2 == 0 ? Shelf.CELLAR : Shelf.UPSTAIRS;
                    book.subjects.addAll(List.of(subjects).subList(0, b % 3));
                }
                session.persist(author);
            }
            Film film = new Film();
            film.label = "film";
            film.minutes = 92;
            session.persist(film);
            Recording recording = new Recording();
            recording.label = "record";
            recording.live = true;
            session.persist(recording);
        });
    }

    static void query(SessionFactory factory) {
        factory.inSession(session -> {
            Author author = session.createSelectionQuery("from Author a left join fetch a.books where a.email = :email", Author.class)
                .setParameter("email", "a3@example.org").getSingleResult();
            Book book = author.books.get(5);
            expect(author.books.size() == 12 && book.title.equals("book 3-05") && book.subjects.size() == 2, "what belongs together");
            expect(author.names.equals(List.of("first", "name 3")) && author.address.street.equals("Street 3"), "the author's parts");
            expect(book.details.get("nr").equals("5") && book.tags[1].equals("t5") && book.cover[1] == -1, "json, arrays, bytes");
            expect(book.price.equals(new BigDecimal("5.50")) && book.reading.toMinutes() == 95, "numbers");
            expect(book.published.equals(LocalDate.of(2020, 3, 5)) && book.shelf == Shelf.UPSTAIRS, "dates and enums");
            List<Object[]> sums = session.createSelectionQuery(
                "select a.email, count(b), sum(b.price), avg(b.pages), max(b.published) from Author a join a.books b "
                + "where b.price > :least group by a.email having count(b) > 5 order by a.email desc", Object[].class)
                .setParameter("least", BigDecimal.ONE).setMaxResults(3).setFirstResult(1).getResultList();
            expect(sums.size() == 3 && sums.get(0)[0].equals("a8@example.org") && sums.get(0)[1].equals(11L)
                && sums.get(0)[2].equals(new BigDecimal("71.50")) && sums.get(0)[3].equals(106.0), "aggregates " + Arrays.toString(sums.get(0)));
            var builder = session.getCriteriaBuilder();
            var criteria = builder.createQuery(Book.class);
            var root = criteria.from(Book.class);
            criteria.where(builder.like(builder.lower(root.get("title")), "%-1%"), builder.between(root.get("pages"), 110, 111),
                root.get("shelf").in(Shelf.CELLAR, Shelf.UPSTAIRS)).orderBy(builder.desc(root.get("title")), builder.asc(root.get("id")));
            expect(session.createQuery(criteria).getResultList().size() == 20, "criteria");
            long streamed = session.createSelectionQuery("from Book b where exists (select 1 from b.subjects s where s.name = 'mice')", Book.class)
                .getResultStream().filter(found -> found.pages > 0).count();
            expect(streamed == 80, "streamed " + streamed);
            expect(session.createSelectionQuery("from Medium order by label", Medium.class).getResultList().get(0) instanceof Film, "inheritance");
            expect(session.bySimpleNaturalId(Subject.class).load("mice") != null, "by natural id");
            Object window = session.createSelectionQuery(
                "select b.title, row_number() over (partition by b.author order by b.pages desc) from Book b order by b.id", Object[].class)
                .setMaxResults(1).getSingleResult()[1];
            expect(window.equals(12L), "window functions");
            Object native_ = session.createNativeQuery("SELECT details->>'nr' FROM books WHERE 't7' = ANY (tags) LIMIT 1", String.class).getSingleResult();
            expect(native_.equals("7"), "SQL");
        });
    }

    static void change(SessionFactory factory) {
        int changed = factory.fromTransaction(session ->
            session.createMutationQuery("update Book b set b.price = b.price * 2, b.version = b.version + 1 where b.pages >= 110").executeUpdate());
        expect(changed == 20, "updated " + changed);
        expect(factory.fromTransaction(session -> session.createMutationQuery("delete from Film where minutes > 90").executeUpdate()) == 1, "a film less");
        factory.inTransaction(session -> {
            Author author = session.createSelectionQuery("from Author where email = 'a0@example.org'", Author.class).getSingleResult();
            author.books.remove(0);
            author.names.add(0, "zeroth");
            author.email = "zero@example.org";
        });
        factory.inTransaction(session -> {
            Book book = session.createSelectionQuery("from Book where title = 'book 1-01'", Book.class)
                .setLockMode(LockModeType.PESSIMISTIC_WRITE).setHint(SpecHints.HINT_SPEC_LOCK_TIMEOUT, 1000).getSingleResult();
            book.summary = "s".repeat(100_000);
        });
        long left = factory.fromSession(session -> session.createSelectionQuery("select count(*) from Book", Long.class).getSingleResult());
        expect(left == 119, "books left " + left);
        try {
            factory.inTransaction(session -> {
                session.persist(new Subject("undone"));
                session.flush();
                throw new IllegalStateException("undone");
            });
        } catch (IllegalStateException undone) {
            expect(factory.fromSession(session -> session.bySimpleNaturalId(Subject.class).load("undone")) == null, "is undone");
        }
    }

    static void errors(SessionFactory factory) {
        expect(code(factory, session -> session.persist(new Author("a1@example.org"))).equals("23505"), "the same address twice");
        expect(code(factory, session -> session.persist(new Book(session.getReference(Author.class, 1), "x", -1))).equals("23514"), "no pages");
        expect(code(factory, session -> session.persist(new Book(session.getReference(Author.class, 9999), "x", 1))).equals("23503"), "nobody's book");
        expect(code(factory, session -> session.createNativeQuery("SELECT 1 / 0", Integer.class).getResultList()).equals("22012"), "division");
        try {
            factory.inTransaction(session -> session.persist(new Author("a1@example.org")));
        } catch (ConstraintViolationException error) {
            expect("author_email".equals(error.getConstraintName()), "the constraint's name: " + error.getConstraintName());
        }
        try (Session first = factory.openSession(); Session second = factory.openSession()) {
            Book mine = first.find(Book.class, 30L), theirs = second.find(Book.class, 30L);
            mine.pages++;
            theirs.pages += 2;
            first.beginTransaction();
            first.getTransaction().commit();
            second.beginTransaction();
            try {
                second.getTransaction().commit();
                expect(false, "a lost update");
            } catch (OptimisticLockException stale) {
                expect(second.getTransaction().getStatus().canRollback() || true, "refused");
            }
        }
    }

    public static void main(String[] arguments) {
        java.util.logging.Logger.getLogger("org.hibernate").setLevel(java.util.logging.Level.OFF);
        Class<?>[] entities = {Author.class, Book.class, Subject.class, Medium.class, Film.class, Recording.class};
        try (SessionFactory factory = open("create", entities)) {
            fill(factory);
            query(factory);
            change(factory);
            errors(factory);
        }
        open("validate", entities).close();
        entities[2] = LaterSubject.class;
        Class<?>[] later = {LaterSubject.class};
        open("update", later).close();
        try (SessionFactory factory = open("validate", later)) {
            factory.inTransaction(session -> {
                LaterSubject parent = session.bySimpleNaturalId(LaterSubject.class).load("mice");
                expect(parent.rank == 1, "the default of the new column");
                LaterSubject child = new LaterSubject();
                child.name = "dormice";
                child.parent = parent;
                session.persist(child);
            });
        }
        System.out.println("hibernate: create, validate, update, relations, batches, transactions, errors");
    }
}
